#include "kernels/loss.h"

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"
#include "kernels/cpu/context.h"

namespace athanor::bench {
namespace {

constexpr double kSmoothing = 0.1;

// Every row's loss counts once: a sum, so that a larger batch has the same gradients.
void add_cross_entropy(const Shape& shape, DType dtype) {
  const double bytes = bytes_of(shape, dtype);
  const std::int64_t tiles = tiles_for(shape, dtype);
  const auto targets = [=] {
    const Tensor target = Tensor::empty({shape[0]}, {DType::i64, kCpu});
    for (std::int64_t i = 0; i < shape[0]; ++i) target.data<std::int64_t>()[i] = 7 * i % shape[1];
    return target;
  };
  add({.op = "cross_entropy",
       .dir = "fwd",
       .dtype = dtype,
       .shape = shape,
       .work = {.bytes = bytes},
       .prepare =
           [=] {
             return call({{pattern(shape, dtype, -3, 3)},
                          {targets()},
                          result(Role::row_result, {shape[0], 2}, DType::f32),
                          result(Role::row_result, {shape[0]}, DType::f32),
                          result(Role::sum_result, {}, DType::f32)},
                         1e-4, [](auto& context, std::span<const Tensor> t) {
                           kernels::cross_entropy_forward(context, t[0], t[1], kSmoothing, 1, t[2], t[3],
                                                          t[4]);
                         });
           },
       .tiles = tiles});
  add({.op = "cross_entropy",
       .dir = "bwd",
       .dtype = dtype,
       .shape = shape,
       .work = {.bytes = 2 * bytes},
       .prepare =
           [=] {
             const Tensor x = pattern(shape, dtype, -3, 3), target = targets();
             const Tensor stats = Tensor::empty({shape[0], 2}), losses = Tensor::empty({shape[0]});
             kernels::cross_entropy_forward(cpu_context(), x, target, kSmoothing, 1, stats, losses, {});
             return call({{x},
                          {target},
                          {stats},
                          {Tensor::from(std::vector<float>{1}, {}), Role::whole},
                          result(Role::row_result, shape, dtype)},
                         4 * epsilon_of(dtype) + 1e-5, [](auto& context, std::span<const Tensor> t) {
                           kernels::cross_entropy_backward(context, t[0], t[1], t[2], kSmoothing, 1, t[3],
                                                           t[4]);
                         });
           },
       .tiles = tiles});
}

}  // namespace

void add_loss() {
  for (const DType dtype : bench_dtypes()) {
    for (const Shape& shape : {Shape{512, 128}, Shape{64, 1000}, Shape{2, 32768}})
      add_cross_entropy(shape, dtype);
  }
}

}  // namespace athanor::bench
