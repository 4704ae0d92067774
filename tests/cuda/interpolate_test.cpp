#include "autograd/interpolate.h"

#include "tests/cuda/ops.h"

namespace athanor::interpolate_test {

using InterpolateOnDevice = test::DeviceTest;
using test::filled;
using test::Layout;

void check_case(const Shape& shape, const InterpolateParams& p, DType dtype, Layout layout = Layout::dense) {
  SCOPED_TRACE(fmt::format(
      "{} {}{} size {} {} scale {} {} {}", shape, p.mode == Interpolation::nearest ? "nearest" : "bilinear",
      p.align_corners ? " aligned" : "", p.size[0], p.size[1], p.scale[0], p.scale[1], dtype));
  test::expect_as_on_cpu([&](const auto& on) {
    const Tensor x = on(filled({shape, layout}, dtype, {1}, 0, 100));
    if (is_floating(dtype)) require_grad(x);
    const Tensor y = interpolate(x, p);
    if (!is_floating(dtype)) return std::vector{y};
    backward(y, on(filled({y.shape(), layout}, dtype, {2})));
    return std::vector{y.detach(), grad_of(x)};
  });
}

// Images that grow, shrink, do both, and stay; by size, by whole scales and others; with channels that are
// whole vectors and such that are not.
TEST_F(InterpolateOnDevice, EqualsCpuBitForBit) {
  const struct {
    Shape x;
    std::int64_t size[2];
    double scale[2];
  } geometries[] = {
      {{2, 4, 5, 3}, {0, 0}, {2, 2}},     {{1, 5, 4, 8}, {0, 0}, {3, 1.5}},
      {{1, 7, 6, 2}, {0, 0}, {0.5, 0.4}}, {{1, 3, 3, 1}, {0, 0}, {2.7, 1.3}},
      {{2, 5, 7, 16}, {11, 13}, {0, 0}},  {{1, 9, 8, 5}, {4, 3}, {0, 0}},
      {{1, 4, 9, 2}, {9, 4}, {0, 0}},     {{1, 6, 5, 3}, {6, 5}, {0, 0}},
      {{2, 1, 1, 4}, {3, 4}, {0, 0}},     {{1, 4, 3, 3}, {1, 1}, {0, 0}},
      {{1, 1, 1, 1}, {1, 1}, {0, 0}},     {{1, 2, 40, 1}, {1, 7}, {0, 0}},
      {{1, 6, 5, 72}, {11, 12}, {0, 0}},
  };
  for (const DType dtype : test::kFloating) {
    for (const auto& [x, size, scale] : geometries) {
      for (const auto& [mode, align] : {std::pair{Interpolation::nearest, false},
                                        {Interpolation::bilinear, false},
                                        {Interpolation::bilinear, true}})
        check_case(x, {mode, align, {size[0], size[1]}, {scale[0], scale[1]}}, dtype);
    }
  }
}

TEST_F(InterpolateOnDevice, NearestCopiesEveryDtype) {
  for (const DType dtype : {DType::u8, DType::i32, DType::i64, DType::boolean})
    for (const std::int64_t channels : {3, 16}) check_case({2, 3, 4, channels}, {.size = {5, 9}}, dtype);
}

TEST_F(InterpolateOnDevice, TensorsMayStartOffAlignmentAndBeStrided) {
  for (const Layout layout : {Layout::misaligned, Layout::gapped}) {
    for (const auto mode : {Interpolation::nearest, Interpolation::bilinear})
      check_case({2, 3, 4, 16}, {.mode = mode, .scale = {2, 3}}, DType::f16, layout);
  }
}

TEST_F(InterpolateOnDevice, EmptyBatchAndNoChannels) {
  for (const Shape& shape : {Shape{0, 4, 4, 3}, Shape{2, 4, 4, 0}}) {
    for (const auto mode : {Interpolation::nearest, Interpolation::bilinear})
      check_case(shape, {.mode = mode, .scale = {2, 2}}, DType::f32);
  }
}

}  // namespace athanor::interpolate_test
