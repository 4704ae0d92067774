#include "kernels/softmax.h"

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"
#include "kernels/cpu/context.h"

namespace athanor::bench {
namespace {

using kernels::SoftmaxForm;

void add_form(const char* op, SoftmaxForm form, const Shape& shape, DType dtype) {
  const double bytes = bytes_of(shape, dtype), tolerance = 4 * epsilon_of(dtype) + 1e-5;
  const std::int64_t tiles = tiles_for(shape, dtype);
  add({.op = op,
       .dir = "fwd",
       .dtype = dtype,
       .shape = shape,
       .work = {.bytes = 2 * bytes},
       .prepare =
           [=] {
             return call({{pattern(shape, dtype, -3, 3)}, result(Role::row_result, shape, dtype)}, tolerance,
                         [form](auto& context, std::span<const Tensor> t) {
                           kernels::softmax_forward(context, form, t[0], 1, t[1]);
                         });
           },
       .tiles = tiles});
  add({.op = op,
       .dir = "bwd",
       .dtype = dtype,
       .shape = shape,
       .work = {.bytes = 3 * bytes},
       .prepare =
           [=] {
             const Tensor x = pattern(shape, dtype, -3, 3), y = empty_like(x);
             kernels::softmax_forward(cpu_context(), form, x, 1, y);
             return call({{y}, {pattern(shape, dtype, -1, 1, 2)}, result(Role::row_result, shape, dtype)},
                         tolerance, [form](auto& context, std::span<const Tensor> t) {
                           kernels::softmax_backward(context, form, t[0], t[1], 1, t[2]);
                         });
           },
       .tiles = tiles});
}

}  // namespace

void add_softmax() {
  for (const DType dtype : bench_dtypes()) {
    for (const Shape& shape : {Shape{512, 128}, Shape{64, 1000}, Shape{2, 32768}})
      add_form("softmax", SoftmaxForm::probability, shape, dtype);
    add_form("log_softmax", SoftmaxForm::logarithm, {64, 1000}, dtype);
  }
}

}  // namespace athanor::bench
