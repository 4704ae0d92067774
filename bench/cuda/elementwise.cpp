#include "kernels/elementwise.h"

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"

namespace athanor::bench {
namespace {

constexpr std::int64_t kColumns = 1024;
const Shape kShape = {64, kColumns};

template <class Op> void add_unary(const char* op, DType dtype) {
  const double bytes = bytes_of(kShape, dtype), tolerance = 4 * epsilon_of(dtype);
  const std::int64_t tiles = tiles_for(kShape, dtype);
  const auto input = [=](std::uint64_t seed) { return Operand{pattern(kShape, dtype, -3, 3, seed)}; };
  const auto output = [=] { return result(Role::row_result, kShape, dtype); };
  add({.op = op,
       .dir = "fwd",
       .dtype = dtype,
       .shape = kShape,
       .work = {.bytes = 2 * bytes},
       .prepare =
           [=] {
             return call({input(1), output()}, tolerance, [](auto& context, std::span<const Tensor> t) {
               kernels::unary_forward<Op>(context, t[0], t[1]);
             });
           },
       .tiles = tiles});
  add({.op = op,
       .dir = "bwd",
       .dtype = dtype,
       .shape = kShape,
       .work = {.bytes = 3 * bytes},
       .prepare =
           [=] {
             return call({input(1), input(2), output()}, tolerance,
                         [](auto& context, std::span<const Tensor> t) {
                           kernels::unary_backward<Op>(context, t[0], t[1], t[2]);
                         });
           },
       .tiles = tiles});
}

// y = a + b, b of a's shape, or one row that is added to all.
void add_sum(DType dtype, bool broadcast) {
  const double bytes = bytes_of(kShape, dtype);
  add({.op = broadcast ? "add_row" : "add",
       .dir = "fwd",
       .dtype = dtype,
       .shape = kShape,
       .work = {.bytes = (broadcast ? 2 : 3) * bytes},
       .prepare =
           [=] {
             const Operand b = {pattern(broadcast ? Shape{kColumns} : kShape, dtype, -1, 1, 2),
                                broadcast ? Role::whole : Role::rows};
             return call({{pattern(kShape, dtype)}, b, result(Role::row_result, kShape, dtype)},
                         2 * epsilon_of(dtype), [](auto& context, std::span<const Tensor> t) {
                           kernels::binary_forward<kernels::Add>(context, t[0], t[1], t[2]);
                         });
           },
       .tiles = tiles_for(kShape, dtype)});
}

}  // namespace

void add_elementwise() {
  for (const DType dtype : bench_dtypes()) {
    add_unary<kernels::Relu>("relu", dtype);
    add_unary<kernels::Gelu>("gelu", dtype);
    add_sum(dtype, false);
    add_sum(dtype, true);
  }
}

}  // namespace athanor::bench
