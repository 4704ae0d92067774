#include "kernels/elementwise.h"
#include "tests/support/ops.h"

namespace athanor::gradcheck_test {

Tensor leaf(std::vector<double> values, const Shape& shape) {
  Tensor x = Tensor::from(values, shape);
  require_grad(x);
  return x;
}

// x * x, whose backward pass multiplies by `factor` instead of 2.
Tensor square_with(const Tensor& x, double factor) {
  const Tensor y = empty_like(x);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double value = x.detach().to_vector()[static_cast<std::size_t>(i)];
    y.data<double>()[i] = value * value;
  }
  return record("square_with", y, {x}, [x = Saved(x), factor](const Tensor& dy, Grads& dx) {
    const std::vector<double> values = x.get().to_vector(), grads = dy.to_vector();
    std::vector<double> result(values.size());
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = factor * values[i] * grads[i];
    dx[0] = Tensor::from(result, dy.shape());
  });
}

auto square_by(double factor) {
  return [factor](std::span<const Tensor> in) { return square_with(in[0], factor); };
}

TEST(Gradcheck, AcceptsARightGradient) {
  const Tensor x = leaf({0.5, -1.5, 3, 1e-3}, {2, 2});
  EXPECT_NO_THROW(gradcheck(square_by(2), std::array{x}));
  EXPECT_FALSE(grad_of(x).defined());  // leaves stay untouched
  EXPECT_EQ(x.to_vector(), (std::vector<double>{0.5, -1.5, 3, 1e-3}));
}

TEST(Gradcheck, NamesInputElementAndBothValuesOfAWrongOne) {
  const Tensor x = leaf({0.5, -1.5, 3, 1e-3}, {2, 2});
  EXPECT_ERROR(Error, gradcheck(square_by(2.001), std::array{x}), "gradcheck", "0", "[0, 0]", "[2, 2]")
      << "a gradient that is off by 0.05 % must not pass";
}

TEST(Gradcheck, SeesAMissingGradientAndAWrongShape) {
  const Tensor x = leaf({1, 2}, {2});
  const auto forget = [](std::span<const Tensor> in) {
    const Tensor y = empty_like(in[0]);
    const NoGrad no_grad;
    std::copy_n(in[0].data<double>(), 2, y.data<double>());
    const EnableGrad grad;
    return record("forget", y, {in[0]}, [](const Tensor&, Grads&) {});
  };
  EXPECT_THROW(gradcheck(forget, std::array{x}), Error);
  const auto misshapen = [](std::span<const Tensor> in) {
    const Tensor y = empty_like(in[0]);
    std::copy_n(in[0].data<double>(), 2, y.data<double>());
    return record("misshapen", y, {in[0]}, [](const Tensor&, Grads& dx) {
      dx[0] = Tensor::zeros({1}, {DType::f64, kCpu});
    });
  };
  EXPECT_THROW(gradcheck(misshapen, std::array{x}), Error);
}

TEST(Gradcheck, TakesStridedAndEmptyInputs) {
  const Tensor base = Tensor::from(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor strided = base.view_as_strided({3, 2}, {1, 3}, 0);
  require_grad(strided);
  const Tensor other = leaf({1, -2, 3, -4, 5, -6}, {3, 2});
  const auto product = [](std::span<const Tensor> in) { return in[0] * in[1]; };
  EXPECT_NO_THROW(gradcheck(product, std::array{strided, other}));
  EXPECT_NO_THROW(gradcheck(product, std::array{leaf({}, {0, 2}), leaf({}, {0, 2})}));
}

TEST(Gradcheck, RejectsWhatItCannotCheck) {
  const Tensor f32 = Tensor::from(std::vector<float>{1}, {1});
  require_grad(f32);
  const auto square = [](std::span<const Tensor> in) { return in[0] * in[0]; };
  EXPECT_THROW(gradcheck(square, std::array{f32}), ArgumentError);
  const Tensor expanded = Tensor::from(std::vector<double>{1}, {1}).view_as_strided({3}, {0}, 0);
  require_grad(expanded);
  EXPECT_THROW(gradcheck(square, std::array{expanded}), ArgumentError);
}

}  // namespace athanor::gradcheck_test
