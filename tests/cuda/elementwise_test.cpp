#include "kernels/elementwise.h"

#include <cmath>

#include "autograd/compare.h"
#include "autograd/elementwise.h"
#include "autograd/shape.h"
#include "kernels/copy.h"
#include "tests/cuda/device.h"

namespace athanor::elementwise_test {

using ElementwiseOnDevice = test::DeviceTest;

constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

// The functors are the same code; what may differ is a last bit where a compiler fuses or a device divides.
double tolerance(DType dtype) {
  return 2 * test::epsilon_of(dtype);
}

template <class Op> void check_unary(const Tensor& x, const Tensor& dy) {
  const Tensor y = empty_like(x), dx = empty_like(x);
  const Tensor on = test::on_device_like(x), dy_on = test::on_device_like(dy);
  const Tensor y_on = empty_like(on), dx_on = empty_like(on);
  CudaContext& context = cuda_context(test::device());
  kernels::unary_forward<Op>(cpu_context(), x, y);
  kernels::unary_forward<Op>(context, on, y_on);
  EXPECT_TRUE(test::close(y_on.to(kCpu), y, tolerance(x.dtype())));
  const bool from_output = Op::kFromOutput;
  kernels::unary_backward<Op>(cpu_context(), from_output ? y : x, dy, dx);
  kernels::unary_backward<Op>(context, from_output ? y_on : on, dy_on, dx_on);
  EXPECT_TRUE(test::close(dx_on.to(kCpu), dx, tolerance(x.dtype())));
}

#define ATH_CHECK_UNARY(Op, name)                                                       \
  TEST_F(ElementwiseOnDevice, Unary_##name##_EqualsCpu) {                               \
    for (const DType dtype : kFloating) {                                               \
      for (const auto& wanted : test::shape_cases()) {                                  \
        SCOPED_TRACE(fmt::format("{} {} {}", dtype, wanted.shape, int(wanted.layout))); \
        check_unary<kernels::Op>(test::filled(wanted, dtype, {1}, 0.1, 2.1),            \
                                 test::filled(wanted, dtype, {2}));                     \
      }                                                                                 \
    }                                                                                   \
  }
ATH_UNARY_OPS(ATH_CHECK_UNARY)
#undef ATH_CHECK_UNARY

// GELU of every value of a 16-bit type, and its derivative: the bits of the CPU, dense and strided.
TEST_F(ElementwiseOnDevice, GeluOfSixteenBitsHasTheBitsOfTheCpu) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor x = Tensor::empty({256, 256}, {dtype, kCpu});
    auto* const bits = reinterpret_cast<std::uint16_t*>(x.raw_data());
    for (std::uint32_t i = 0; i < 65536; ++i) bits[i] = static_cast<std::uint16_t>(i);
    const Tensor on = x.to(test::device()), dy = test::filled({{256, 256}}, dtype, {3}),
                 dy_on = dy.to(test::device());
    CudaContext& context = cuda_context(test::device());
    const Tensor y = empty_like(x), dx = empty_like(x);
    kernels::unary_forward<kernels::Gelu>(cpu_context(), x, y);
    kernels::unary_backward<kernels::Gelu>(cpu_context(), x, dy, dx);
    const std::vector<double> expected = y.to_vector(), expected_dx = dx.to_vector();
    const Tensor views[] = {on, on.view_as_strided({256, 256}, {1, 256}, 0)};
    const Tensor seeds[] = {dy_on, dy_on.view_as_strided({256, 256}, {1, 256}, 0)};
    for (const int transposed : {0, 1}) {
      const Tensor y_on = empty_like(on), dx_on = empty_like(on);
      kernels::unary_forward<kernels::Gelu>(context, views[transposed], y_on);
      kernels::unary_backward<kernels::Gelu>(context, views[transposed], seeds[transposed], dx_on);
      const std::vector<double> found = y_on.to(kCpu).to_vector(), found_dx = dx_on.to(kCpu).to_vector();
      for (std::size_t i = 0; i < 65536; ++i) {
        const std::size_t at = transposed ? i % 256 * 256 + i / 256 : i;
        const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
        ASSERT_TRUE(same(found[i], expected[at])) << i;
        ASSERT_TRUE(same(found_dx[i], expected_dx[at])) << i;
      }
    }
  }
}

template <class Op> void check_binary(const Tensor& a, const Tensor& b) {
  const Tensor y = Tensor::empty(broadcast_shapes(a.shape(), b.shape(), "test"), a.options());
  const Tensor y_on = Tensor::empty(y.shape(), {y.dtype(), test::device()});
  kernels::binary_forward<Op>(cpu_context(), a, b, y);
  kernels::binary_forward<Op>(cuda_context(test::device()), test::on_device_like(a), test::on_device_like(b),
                              y_on);
  EXPECT_TRUE(test::close(y_on.to(kCpu), y, tolerance(a.dtype())));
}

#define ATH_CHECK_BINARY(Op, name)                                                                  \
  TEST_F(ElementwiseOnDevice, Binary_##name##_BroadcastsLikeCpu) {                                  \
    const std::pair<Shape, Shape> shapes[] = {{{7}, {7}},       {{4, 5}, {5}},    {{4, 1}, {1, 6}}, \
                                              {{2, 3, 4}, {1}}, {{0, 3}, {1, 3}}, {{}, {}}};        \
    for (const DType dtype : kFloating) {                                                           \
      for (const auto& [a, b] : shapes) {                                                           \
        check_binary<kernels::Op>(test::filled({a}, dtype, {1}, 0.5, 2),                            \
                                  test::filled({b}, dtype, {2}, 0.5, 2));                           \
      }                                                                                             \
    }                                                                                               \
  }
ATH_BINARY_OPS(ATH_CHECK_BINARY)
#undef ATH_CHECK_BINARY

template <class Op> void check_binary_backward(const Tensor& a, const Tensor& b, const Tensor& dy) {
  const Tensor a_on = test::on_device_like(a), b_on = test::on_device_like(b),
               dy_on = test::on_device_like(dy);
  for (const int operand : {0, 1}) {
    const Tensor dx = empty_like(dy), dx_on = empty_like(dy_on);
    kernels::binary_backward<Op>(cpu_context(), operand, a, b, dy, dx);
    kernels::binary_backward<Op>(cuda_context(test::device()), operand, a_on, b_on, dy_on, dx_on);
    EXPECT_TRUE(test::close(dx_on.to(kCpu), dx, tolerance(a.dtype())));
  }
}

#define ATH_CHECK_BINARY_BACKWARD(Op, name)                                             \
  TEST_F(ElementwiseOnDevice, Binary_##name##_BackwardEqualsCpu) {                      \
    for (const DType dtype : kFloating) {                                               \
      for (const auto& wanted : test::shape_cases()) {                                  \
        SCOPED_TRACE(fmt::format("{} {} {}", dtype, wanted.shape, int(wanted.layout))); \
        const Tensor a = test::filled(wanted, dtype, {1}, 0.5, 2);                      \
        check_binary_backward<kernels::Op>(a, test::filled(wanted, dtype, {2}, 0.5, 2), \
                                           test::filled(wanted, dtype, {3}));           \
        check_binary_backward<kernels::Op>(a, a, test::filled(wanted, dtype, {3}));     \
      }                                                                                 \
    }                                                                                   \
  }
ATH_BINARY_GRADIENTS(ATH_CHECK_BINARY_BACKWARD)
#undef ATH_CHECK_BINARY_BACKWARD

using Binary = Tensor (*)(const Tensor&, const Tensor&);

// Numbers of both signs, wherever they lie.
TEST_F(ElementwiseOnDevice, IntegersEqualCpu) {
  for (const DType dtype : {DType::i64, DType::i32, DType::u8}) {
    for (const auto& wanted : test::shape_cases()) {
      SCOPED_TRACE(fmt::format("{} {} {}", dtype, wanted.shape, int(wanted.layout)));
      const Tensor a = test::make(wanted, dtype), b = test::make(wanted, dtype);
      kernels::copy(cpu_context(), test::filled({wanted.shape}, DType::f32, {1}, -99, 99), a);
      kernels::copy(cpu_context(), test::filled({wanted.shape}, DType::f32, {2}, -99, 99), b);
      const Tensor a_on = test::on_device_like(a), b_on = test::on_device_like(b);
      for (Tensor (*op)(const Tensor&, const Tensor&) : {add, sub, mul, maximum, minimum})
        EXPECT_TRUE(test::same_bits(op(a_on, b_on).to(kCpu), op(a, b)));
      const Tensor some = add(a, cast(eq(a, 0), dtype));  // none of them 0
      for (const Binary op : {Binary{floor_divide}, Binary{remainder}})
        EXPECT_TRUE(test::same_bits(op(b_on, some.to(test::device())).to(kCpu), op(b, some)));
      EXPECT_TRUE(test::same_bits(abs(a_on).to(kCpu), abs(a)));
      EXPECT_TRUE(test::same_bits(neg(a_on).to(kCpu), neg(a)));
    }
  }
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
