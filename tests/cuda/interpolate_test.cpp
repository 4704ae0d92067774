#include "kernels/interpolate.h"

#include "tests/cuda/ops.h"
#include "tests/support/interpolate_cases.h"

namespace athanor::interpolate_test {

using InterpolateOnDevice = test::DeviceTest;
using test::filled;
using test::InterpolateCase;
using test::Layout;

void check_case(const InterpolateCase& c, DType dtype, Layout layout = Layout::dense) {
  SCOPED_TRACE(fmt::format("{} {}", test::describe(c), dtype));
  test::expect_as_on_cpu([&](const auto& on) {
    const Tensor x = on(filled({c.x, layout}, dtype, {1}, 0, 100));
    if (is_floating(dtype)) require_grad(x);
    const Tensor y = interpolate(x, c.params);
    if (!is_floating(dtype)) return std::vector{y};
    backward(y, on(filled({y.shape(), layout}, dtype, {2})));
    return std::vector{y.detach(), grad_of(x)};
  });
}

TEST_F(InterpolateOnDevice, EqualsCpuBitForBit) {
  for (const DType dtype : test::kFloating)
    for (const InterpolateCase& c : test::interpolate_cases()) check_case(c, dtype);
}

TEST_F(InterpolateOnDevice, NearestCopiesEveryDtype) {
  for (const DType dtype : {DType::u8, DType::i32, DType::i64, DType::boolean})
    for (const std::int64_t channels : {3, 16}) check_case({{2, 3, 4, channels}, {.size = {5, 9}}}, dtype);
}

TEST_F(InterpolateOnDevice, TensorsMayStartOffAlignmentAndBeStrided) {
  for (const Layout layout : {Layout::misaligned, Layout::gapped}) {
    for (const auto mode : {Interpolation::nearest, Interpolation::bilinear})
      check_case({{2, 3, 4, 16}, {.mode = mode, .scale = {2, 3}}}, DType::f16, layout);
  }
}

TEST_F(InterpolateOnDevice, EmptyBatchAndNoChannels) {
  for (const Shape& shape : {Shape{0, 4, 4, 3}, Shape{2, 4, 4, 0}}) {
    for (const auto mode : {Interpolation::nearest, Interpolation::bilinear})
      check_case({shape, {.mode = mode, .scale = {2, 2}}}, DType::f32);
  }
}

}  // namespace athanor::interpolate_test
