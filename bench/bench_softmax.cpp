#include <cmath>

#include "bench/support/bench.h"
#include "kernels/cpu/context.h"
#include "kernels/softmax.h"

namespace athanor::bench {
namespace {

using kernels::SoftmaxForm;

// exp(x) / sum(exp(x)) along the last axis, or its logarithm, in double.
std::vector<double> reference(const Tensor& x, SoftmaxForm form) {
  std::vector<double> y = x.to_vector();
  const std::int64_t n = x.shape()[1];
  for (auto row = y.begin(); row != y.end(); row += n) {
    double total = 0;
    for (auto value = row; value != row + n; ++value) total += std::exp(*value);
    for (auto value = row; value != row + n; ++value)
      *value = form == SoftmaxForm::logarithm ? *value - std::log(total) : std::exp(*value) / total;
  }
  return y;
}

void add_softmax(SoftmaxForm form, DType dtype, const Shape& shape) {
  const char* op = form == SoftmaxForm::logarithm ? "log_softmax" : "softmax";
  const double bytes = static_cast<double>(shape.numel()) * static_cast<double>(size_of(dtype));
  add({op, "fwd", dtype, shape_name(shape)}, {.bytes = 2 * bytes}, [=] {
    const Tensor x = filled(shape, dtype, -3, 3), y = empty_like(x);
    const auto run = [=] { kernels::softmax_forward(cpu_context(), form, x, 1, y); };
    run();
    return Prepared{run, max_error(y, reference(x, form)), 8 * epsilon_of(dtype)};
  });
  add({op, "bwd", dtype, shape_name(shape)}, {.bytes = 3 * bytes}, [=] {
    const Tensor y = empty_like(filled(shape, dtype)), dy = filled(shape, dtype, -1, 1, 2),
                 dx = empty_like(y);
    kernels::softmax_forward(cpu_context(), form, filled(shape, dtype, -3, 3), 1, y);
    const auto run = [=] { kernels::softmax_backward(cpu_context(), form, y, dy, 1, dx); };
    run();
    std::vector<double> expected = dy.to_vector();
    const std::vector<double> result = y.to_vector();
    const auto n = static_cast<std::size_t>(shape[1]);
    for (std::size_t row = 0; row < expected.size(); row += n) {
      const bool log = form == SoftmaxForm::logarithm;
      double total = 0;
      for (std::size_t i = row; i < row + n; ++i) total += expected[i] * (log ? 1 : result[i]);
      for (std::size_t i = row; i < row + n; ++i)
        expected[i] = log ? expected[i] - std::exp(result[i]) * total : result[i] * (expected[i] - total);
    }
    return Prepared{run, max_error(dx, expected), 16 * epsilon_of(dtype)};
  });
}

}  // namespace

void register_all() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape& shape :
         {Shape{1 << 14, 10}, Shape{1 << 12, 256}, Shape{1 << 10, 1000}, Shape{128, 32'000}}) {
      add_softmax(SoftmaxForm::probability, dtype, shape);
      add_softmax(SoftmaxForm::logarithm, dtype, shape);
    }
  }
}

}  // namespace athanor::bench
