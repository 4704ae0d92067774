#include "kernels/copy.h"

#include "kernels/account/detail/cost.h"
#include "kernels/accumulate.h"
#include "kernels/hash.h"

namespace athanor::kernels {

using account::bytes;
using account::launch;
using account::map;

/// Reads and writes each element once. What 16-byte vectors leave over of a dense tensor is a launch of its
/// own.
template <> void copy(AccountContext& context, const Tensor& x, const Tensor& y) {
  const bool casts = x.dtype() != y.dtype(), dense = x.is_contiguous() && y.is_contiguous();
  const std::int64_t width = account::per_vector(y.dtype()), rest = y.numel() % width;
  if (casts || !dense || y.numel() <= width || rest == 0)
    return map(context, casts ? "cast" : "copy", bytes(x), y);
  const std::int64_t last = rest * account::size(y.dtype());
  launch(context, "copy", last, last);
  launch(context, "copy", bytes(y) - last, bytes(y) - last);
}

template <> void fill(AccountContext& context, const Tensor& y, double) {
  map(context, "fill", 0, y);
}
template <> void add_into(AccountContext& context, const Tensor& x, const Tensor& y) {
  map(context, "add_into", bytes(x, y), y);
}
template <> void arange(AccountContext& context, double, double, const Tensor& y) {
  map(context, "arange", 0, y);
}
template <> void eye(AccountContext& context, const Tensor& y) {
  map(context, "eye", 0, y);
}

template <> void accumulate(AccountContext& context, Combine, const Tensor& x, const Tensor& y) {
  map(context, "accumulate", bytes(x, y), y);
}
template <> void combine_rows(AccountContext& context, Combine, const Tensor& x, const Tensor& y) {
  map(context, "combine_rows", bytes(x), y);
}
template <> void sum_squares(AccountContext& context, const Tensor& x, const Tensor& total) {
  account::total(context, "sum_squares", x.numel(), account::size(x.dtype()), bytes(x), bytes(total));
}

template <> std::uint64_t hash_elements(AccountContext& context, const Tensor& x, std::uint64_t) {
  account::exact_total(context, "hash_elements", x);
  return 0;
}

}  // namespace athanor::kernels
