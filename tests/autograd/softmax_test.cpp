#include "autograd/softmax.h"

#include "tests/support/ops.h"

namespace athanor::softmax_test {

Tensor values(const Shape& shape, DType dtype, double scale = 3) {
  const Tensor x = Tensor::empty(shape, {DType::f64, kCpu});
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data<double>()[i] = scale * (2 * std::fmod(0.61803398875 * static_cast<double>(i + 1), 1.0) - 1);
  return cast(x, dtype);
}

TEST(Softmax, LongSlicesSumAccurately) {
  for (const Shape& shape : {Shape{100'001, 3}, Shape{3, 100'001}, Shape{2, 30'000, 2}}) {
    const Tensor x = values(shape, DType::f32), dy = values(shape, DType::f32, 1);
    const Tensor x64 = cast(x, DType::f64), dy64 = cast(dy, DType::f64);
    require_grad(x), require_grad(x64);
    const int axis = shape[0] == 100'001 ? 0 : 1;
    for (const auto op : {softmax, log_softmax}) {
      const Tensor y = op(x, axis), y64 = op(x64, axis);
      EXPECT_TRUE(test::close(y, y64.to_vector(), 2e-6)) << shape.str();
      zero_grad(x), zero_grad(x64);
      backward(y, dy), backward(y64, dy64);
      EXPECT_TRUE(test::close(grad_of(x), grad_of(x64).to_vector(), 4e-6)) << shape.str();
    }
  }
}

TEST(Softmax, HandWorkedValues) {
  const Tensor x = Tensor::from(std::vector<double>{0, std::log(2.0), std::log(5.0)}, {3});
  EXPECT_TRUE(test::close(softmax(x), std::vector<double>{0.125, 0.25, 0.625}, 1e-15));
  EXPECT_TRUE(test::close(log_softmax(x),
                          std::vector<double>{-std::log(8.0), -std::log(4.0), std::log(0.625)}, 1e-15));
}

TEST(Softmax, OneElementIsCertain) {
  EXPECT_EQ(softmax(values({3, 1}, DType::f32), 1).to_vector(), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(log_softmax(values({3, 1}, DType::f32), 1).to_vector(), (std::vector<double>{0, 0, 0}));
}

TEST(Softmax, LargeLogitsDoNotOverflow) {
  const Tensor x = Tensor::from(std::vector<float>{1e4f, 1e4f, -1e4f}, {3});
  EXPECT_EQ(softmax(x).to_vector(), (std::vector<double>{0.5, 0.5, 0}));
  EXPECT_NEAR(log_softmax(x).to_vector()[2], -2e4 - std::log(2.0), 1e-2);
}

TEST(Softmax, MinusInfinityIsAMaskAndNaNSpoilsItsSliceOnly) {
  const float inf = INFINITY;
  const Tensor x = Tensor::from(std::vector<float>{1, -inf, 1, NAN, 0, 0, -inf, -inf, -inf}, {3, 3});
  const std::vector<double> y = softmax(x, 1).to_vector();
  EXPECT_EQ(std::vector<double>(y.begin(), y.begin() + 3), (std::vector<double>{0.5, 0, 0.5}));
  for (std::size_t i = 3; i < 9; ++i) EXPECT_TRUE(std::isnan(y[i]));
  const std::vector<double> columns =
      softmax(Tensor::from(std::vector<float>{1, NAN, 1, 0}, {2, 2}), 0).to_vector();
  EXPECT_EQ(columns[0], 0.5);
  EXPECT_TRUE(std::isnan(columns[1]) && std::isnan(columns[3]));
}

TEST(Softmax, EmptyShapesStay) {
  for (const Shape& shape : {Shape{0}, Shape{0, 3}, Shape{3, 0}})
    EXPECT_EQ(softmax(Tensor::zeros(shape)).shape(), shape);
}

TEST(Softmax, RejectsScalarsIntegersAndBadAxes) {
  EXPECT_THROW(softmax(Tensor::zeros({})), ArgumentError);
  EXPECT_THROW(softmax(Tensor::zeros({2, 2}), 2), ArgumentError);
  EXPECT_THROW(log_softmax(Tensor::zeros({2}, {DType::i64, kCpu})), ArgumentError);
}

}  // namespace athanor::softmax_test
