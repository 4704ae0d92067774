#include "kernels/elementwise.h"

#include <cmath>

#include "autograd/compare.h"
#include "kernels/copy.h"
#include "kernels/cpu/context.h"
#include "kernels/cuda/context.h"
#include "tests/cuda/ops.h"

namespace athanor::elementwise_test {

using ElementwiseOnDevice = test::DeviceTest;

// The functors are the same code; what may differ is a last bit where a compiler fuses or a device divides.
double tolerance(DType dtype) {
  return 2 * test::epsilon_of(dtype);
}

#define ATH_CHECK_UNARY(Op, name)                                                                         \
  TEST_F(ElementwiseOnDevice, Unary_##name##_EqualsCpu) {                                                 \
    test::for_every_shape([](const test::ShapeCase& wanted, DType dtype) {                                \
      const Tensor x = test::filled(wanted, dtype, {1}, 0.1, 2.1), dy = test::filled(wanted, dtype, {2}); \
      test::expect_as_on_cpu(                                                                             \
          [&](const auto& on) {                                                                           \
            const Tensor in = on(x), y = empty_like(in), dx = empty_like(in);                             \
            kernels::unary_forward<kernels::Op>(on.context, in, y);                                       \
            const bool from_output = kernels::Op::kFromOutput;                                            \
            kernels::unary_backward<kernels::Op>(on.context, from_output ? y : in, on(dy), dx);           \
            return std::vector{y, dx};                                                                    \
          },                                                                                              \
          {tolerance(dtype)});                                                                            \
    });                                                                                                   \
  }
ATH_UNARY_OPS(ATH_CHECK_UNARY)
#undef ATH_CHECK_UNARY

/// From a value to the next larger one of a 16-bit type, at that magnitude.
double last_place(DType dtype, double value) {
  const int digits = dtype == DType::f16 ? 11 : 8, smallest = dtype == DType::f16 ? -14 : -126;
  const int exponent = value == 0 ? smallest : std::max(std::ilogb(value), smallest);
  return std::ldexp(1.0, exponent + 1 - digits);
}

// GELU of every value of a 16-bit type, and its derivative, dense and strided, within the errors that
// ShortGelu states, which are of Phi, and half of a last place.
TEST_F(ElementwiseOnDevice, GeluOfSixteenBitsKeepsItsErrorsForEveryValue) {
  CudaContext& context = cuda_context(test::device());
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor x = Tensor::empty({256, 256}, {dtype, kCpu}),
                 seeds = Tensor::empty({256, 256}, {dtype, kCpu});
    auto* const bits = reinterpret_cast<std::uint16_t*>(x.raw_data());
    for (std::uint32_t i = 0; i < 65536; ++i) bits[i] = static_cast<std::uint16_t>(i);
    kernels::fill(cpu_context(), seeds, -2);
    const Tensor on = x.to(test::device()), dy = seeds.to(test::device());
    const std::vector<double> values = x.to_vector();
    for (const bool transposed : {false, true}) {
      const Strides strides = transposed ? Strides{1, 256} : Strides{256, 1};
      const Tensor y = empty_like(on), dx = empty_like(on), view = on.view_as_strided({256, 256}, strides, 0);
      kernels::unary_forward<kernels::Gelu>(context, view, y);
      kernels::unary_backward<kernels::Gelu>(context, view, dy, dx);
      const std::vector<double> found = y.to(kCpu).to_vector(), found_dx = dx.to(kCpu).to_vector();
      double worst = 0, worst_dx = 0;  // of what is allowed besides rounding
      for (std::size_t i = 0; i < 65536; ++i) {
        const double at = values[transposed ? i % 256 * 256 + i / 256 : i];
        if (!std::isfinite(at)) {
          EXPECT_TRUE(at > 0 ? found[i] == at : std::isnan(found[i])) << at;
          EXPECT_EQ(std::isnan(found_dx[i]), std::isnan(at)) << at;
          EXPECT_FALSE(std::fabs(found_dx[i] - (at > 0 ? -2 : 0)) > 0x1p-25) << at;
          continue;
        }
        const double tail = 0.5 * std::erfc(std::fabs(at) / std::sqrt(2.0)), below = at < 0 ? tail : 1 - tail,
                     density = std::exp(-at * at / 2) / std::sqrt(2 * std::acos(-1.0));
        const double expected = at * below, expected_dx = -2 * (below + at * density);
        const auto excess = [&](double result, double exact, double allowed) {
          return (std::fabs(result - exact) - last_place(dtype, exact) / 2) / allowed;
        };
        worst = std::max(worst, excess(found[i], expected, 0x1p-14 * std::fabs(at) * tail + 0x1p-26));
        worst_dx = std::max(worst_dx, excess(found_dx[i], expected_dx, 2 * (0x1p-14 * tail + 0x1p-26)));
      }
      EXPECT_LT(worst, 1) << name_of(dtype) << transposed;
      EXPECT_LT(worst_dx, 1) << name_of(dtype) << transposed;
    }
  }
}

// Where results are f32, or f64, so is the function.
TEST_F(ElementwiseOnDevice, GeluOfOtherTypesIsThatOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = test::filled({{4096}}, dtype, {1}, -6, 6);
    test::expect_as_on_cpu([&](const auto& on) {
      const Tensor in = on(x), y = empty_like(in);
      kernels::unary_forward<kernels::Gelu>(on.context, in, y);
      return std::vector{y};
    });
  }
}

#define ATH_CHECK_BINARY(Op, name)                                                                  \
  TEST_F(ElementwiseOnDevice, Binary_##name##_BroadcastsLikeCpu) {                                  \
    const std::pair<Shape, Shape> shapes[] = {{{7}, {7}},       {{4, 5}, {5}},    {{4, 1}, {1, 6}}, \
                                              {{2, 3, 4}, {1}}, {{0, 3}, {1, 3}}, {{}, {}}};        \
    for (const DType dtype : test::kFloating) {                                                     \
      for (const auto& [first, second] : shapes) {                                                  \
        const Tensor a = test::filled({first}, dtype, {1}, 0.5, 2),                                 \
                     b = test::filled({second}, dtype, {2}, 0.5, 2);                                \
        test::expect_as_on_cpu(                                                                     \
            [&](const auto& on) {                                                                   \
              const Tensor y = on.empty(broadcast_shapes(a.shape(), b.shape(), "test"), dtype);     \
              kernels::binary_forward<kernels::Op>(on.context, on(a), on(b), y);                    \
              return std::vector{y};                                                                \
            },                                                                                      \
            {tolerance(dtype)});                                                                    \
      }                                                                                             \
    }                                                                                               \
  }
ATH_BINARY_OPS(ATH_CHECK_BINARY)
#undef ATH_CHECK_BINARY

#define ATH_CHECK_BINARY_BACKWARD(Op, name)                                                             \
  TEST_F(ElementwiseOnDevice, Binary_##name##_BackwardEqualsCpu) {                                      \
    test::for_every_shape([](const test::ShapeCase& wanted, DType dtype) {                              \
      const Tensor a = test::filled(wanted, dtype, {1}, 0.5, 2), dy = test::filled(wanted, dtype, {3}); \
      for (const Tensor& b : {test::filled(wanted, dtype, {2}, 0.5, 2), a}) {                           \
        for (const int operand : {0, 1}) {                                                              \
          test::expect_as_on_cpu(                                                                       \
              [&](const auto& on) {                                                                     \
                const Tensor dx = empty_like(on(dy));                                                   \
                kernels::binary_backward<kernels::Op>(on.context, operand, on(a), on(b), on(dy), dx);   \
                return std::vector{dx};                                                                 \
              },                                                                                        \
              {tolerance(dtype)});                                                                      \
        }                                                                                               \
      }                                                                                                 \
    });                                                                                                 \
  }
ATH_BINARY_GRADIENTS(ATH_CHECK_BINARY_BACKWARD)
#undef ATH_CHECK_BINARY_BACKWARD

using Binary = Tensor (*)(const Tensor&, const Tensor&);

// Numbers of both signs, wherever they lie.
TEST_F(ElementwiseOnDevice, IntegersEqualCpu) {
  const DType integers[] = {DType::i64, DType::i32, DType::u8};
  test::for_every_shape(
      [](const test::ShapeCase& wanted, DType dtype) {
        const Tensor a = test::make(wanted, dtype), b = test::make(wanted, dtype);
        kernels::copy(cpu_context(), test::filled({wanted.shape}, DType::f32, {1}, -99, 99), a);
        kernels::copy(cpu_context(), test::filled({wanted.shape}, DType::f32, {2}, -99, 99), b);
        const Tensor some = add(a, cast(eq(a, 0), dtype));  // none of them 0
        test::expect_as_on_cpu([&](const auto& on) {
          std::vector<Tensor> results{abs(on(a)), neg(on(a)), floor_divide(on(b), on(some)),
                                      remainder(on(b), on(some))};
          for (const Binary op : {add, sub, mul, Binary{maximum}, Binary{minimum}})
            results.push_back(op(on(a), on(b)));
          return results;
        });
      },
      integers);
}

// The host has no time to look.
TEST_F(ElementwiseOnDevice, IntegersDividedByZeroAreZero) {
  const Tensor a = Tensor::from(std::vector<std::int32_t>{7, -7}, {2}, test::device());
  for (const Binary op : {Binary{floor_divide}, Binary{remainder}})
    EXPECT_EQ(op(a, Tensor::zeros({1}, a.options())).to_vector(), (std::vector<double>{0, 0}));
}

TEST_F(ElementwiseOnDevice, AffineRoundsOnce) {
  const Tensor x = Tensor::from(std::vector<float>{1.5f, -2, 0.25f}, {3}, test::device());
  const Tensor y = empty_like(x);
  kernels::affine(cuda_context(test::device()), x, 2, 1, y);
  EXPECT_EQ(y.to_vector(), (std::vector<double>{4, -3, 1.5}));
}

TEST_F(ElementwiseOnDevice, DerivativesFarOutAndAtNaN) {
  const Tensor x = Tensor::from(std::vector<float>{-3e38f, 3e38f, NAN}, {3}, test::device());
  const Tensor dy = Tensor::from(std::vector<float>{2, 2, 2}, {3}, test::device()), dx = empty_like(x);
  kernels::unary_backward<kernels::GeluTanh>(cuda_context(test::device()), x, dy, dx);
  std::vector<double> found = dx.to_vector();
  EXPECT_EQ(found[0], 0);
  EXPECT_EQ(found[1], 2);
  EXPECT_TRUE(std::isnan(found[2]));
  kernels::unary_backward<kernels::Abs>(cuda_context(test::device()), x, dy, dx);
  EXPECT_EQ(dx.to_vector(), (std::vector<double>{-2, 2, 0}));
}

TEST_F(ElementwiseOnDevice, ReluKeepsNaN) {
  const Tensor x = Tensor::from(std::vector<float>{NAN, -1, 2, -0.0f, INFINITY}, {5}, test::device());
  const Tensor y = empty_like(x);
  kernels::unary_forward<kernels::Relu>(cuda_context(test::device()), x, y);
  const auto values = y.to_vector();
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], 0);
  EXPECT_EQ(values[2], 2);
  EXPECT_EQ(values[4], INFINITY);
}

}  // namespace athanor::elementwise_test
