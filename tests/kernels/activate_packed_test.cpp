#include "kernels/cpu/activate_packed.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/shape.h"
#include "kernels/activate.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "tests/support/activations.h"

namespace athanor::activate_packed_test {

/// y, after SiLU, as that of x in f64: within `relative` of it, or `absolute`. NaN where that is NaN.
void expect_silu(const std::vector<double>& x, const Tensor& y, double relative, double absolute) {
  const std::vector<double> found = y.to_vector();
  ASSERT_EQ(found.size(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wanted = x[i] / (1 + std::exp(-x[i]));
    if (std::isnan(x[i])) {
      EXPECT_TRUE(std::isnan(found[i])) << i;
    } else if (!std::isinf(x[i])) {
      EXPECT_NEAR(found[i], wanted, std::abs(wanted) * relative + absolute) << x[i];
    }
  }
}

TEST(ActivatePacked, SiluOfBf16IsRightToTheLastPlace) {
  const Tensor y = Tensor::empty({(1 << 16) - 3}, {DType::bf16});  // with a part of a vector at the end
  for (std::int64_t i = 0; i < y.numel(); ++i) y.data<BFloat16>()[i].bits = static_cast<std::uint16_t>(i);
  const std::vector<double> x = y.to_vector();
  cpu::activate_packed(cpu_context(), Activation::silu, y);
  expect_silu(x, y, 1. / 128, 1e-35);
}

// The functor's own error, without AVX-512, is 2.2e-7.
TEST(ActivatePacked, SiluOfF32IsRightToTwoPlaces) {
  const std::int64_t step = 4099;  // of bits; a prime, so that all mantissas occur
  const Tensor y = Tensor::empty({(std::int64_t{1} << 32) / step - 5}, {DType::f32});
  for (std::int64_t i = 0; i < y.numel(); ++i)
    y.data<float>()[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * step));
  const std::vector<double> x = y.to_vector();
  cpu::activate_packed(cpu_context(), Activation::silu, y);
  expect_silu(x, y, cpu::has_avx512() ? 2e-7 : 2.4e-7, 3e-37);
}

TEST(ActivatePacked, GivesInfinitiesAndNanLikeActivate) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {kInfinity, -kInfinity, std::nanf(""), 3e38f, -3e38f, 0, -0.f, 89, -89};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double relative = dtype == DType::f32 ? 4e-7 : 1. / 128;
    for (const Activation activation : test::kActivations) {
      const Tensor y = cast(Tensor::from(values, {std::ssize(values)}), dtype), expected = clone(y);
      cpu::activate_packed(cpu_context(), activation, y);
      kernels::activate(cpu_context(), activation, expected);
      const std::vector<double> all_found = y.to_vector(), all_wanted = expected.to_vector();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double found = all_found[i], wanted = all_wanted[i];
        EXPECT_EQ(std::isnan(found), std::isnan(wanted)) << name_of(dtype) << ' ' << values[i];
        if (std::isnan(wanted)) continue;
        EXPECT_EQ(std::signbit(found), std::signbit(wanted)) << name_of(dtype) << ' ' << values[i];
        if (std::isinf(wanted))
          EXPECT_EQ(found, wanted) << name_of(dtype) << ' ' << values[i];
        else
          EXPECT_NEAR(found, wanted, std::abs(wanted) * relative + 3e-37)
              << name_of(dtype) << ' ' << values[i];
      }
    }
  }
}

}  // namespace athanor::activate_packed_test
