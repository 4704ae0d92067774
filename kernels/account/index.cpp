#include "kernels/index.h"

#include "kernels/account/detail/cost.h"
#include "kernels/copy.h"

// What an index selects is not known: as many different elements as it can.

namespace athanor::kernels {

using account::bytes;
using account::map;

template <> void check_indices(AccountContext&, const char*, const Tensor&, std::int64_t) {}

template <>
void index_select(AccountContext& context, const Tensor& x, int, const Tensor& index, const Tensor& y) {
  map(context, "index_select", std::min(bytes(x), bytes(y)) + bytes(index), y);
}
template <> void gather(AccountContext& context, const Tensor& x, int, const Tensor& index, const Tensor& y) {
  map(context, "gather", std::min(bytes(x), bytes(y)) + bytes(index), y);
}

namespace {

/// Half types are summed in an f32 copy of dx.
void add_lines(AccountContext& context, const char* kernel, const Tensor& dy, const Tensor& index,
               const Tensor& dx) {
  if (dy.numel() == 0) return;
  const bool half = account::size(dx.dtype()) == 2;
  const Tensor sums = half ? Tensor::empty(dx.shape(), {DType::f32, dx.device()}) : dx;
  if (half) copy(context, dx, sums);
  const std::int64_t added = std::min(bytes(sums), dy.numel() * account::wide(dx));
  account::launch(context, kernel, bytes(dy) + bytes(index) + added, added);
  if (half) copy(context, sums, dx);
}

}  // namespace

template <>
void index_add(AccountContext& context, const Tensor& dy, int, const Tensor& index, const Tensor& dx) {
  add_lines(context, "index_add", dy, index, dx);
}
template <>
void scatter_add(AccountContext& context, const Tensor& dy, int, const Tensor& index, const Tensor& dx) {
  add_lines(context, "scatter_add", dy, index, dx);
}

template <>
void where(AccountContext& context, const Tensor& condition, const Tensor& a, const Tensor& b,
           const Tensor& y) {
  map(context, "where", bytes(condition) + bytes(a, b), y);
}

}  // namespace athanor::kernels
