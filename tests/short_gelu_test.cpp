#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/engine.h"

namespace athanor {
namespace {

// Every value of a 16-bit type.
Tensor all_values(DType dtype) {
  const Tensor x = Tensor::empty({65536}, {dtype, kCpu});
  auto* const bits = reinterpret_cast<std::uint16_t*>(x.raw_data());
  for (std::uint32_t i = 0; i < 65536; ++i) bits[i] = static_cast<std::uint16_t>(i);
  return x;
}

// GELU of 16-bit types and its derivative are polynomials: against double, for each of the 65,536 values.
// `kept` bits of a number are its type's; its last one is worth at least `least`. Errors are those of
// rounding to the type, and the polynomial's: 8e-6 of the result, 1.4e-5 of the derivative.
TEST(ShortGelu, EveryValueOfSixteenBits) {
  struct Format {
    DType dtype;
    int kept;
    double least;
  };
  for (const Format& format : {Format{DType::f16, 11, 0x1p-24}, Format{DType::bf16, 8, 0x1p-133}}) {
    const Tensor x = require_grad(all_values(format.dtype));
    const Tensor y = gelu(x);
    backward(y, ones(y.shape(), y.options()));
    const std::vector<double> in = x.to_vector(), out = y.to_vector(), slope = grad_of(x).to_vector();
    const auto half_ulp = [&](double exact) {
      int exponent;
      std::frexp(exact, &exponent);
      return std::max(std::ldexp(1.0, exponent - format.kept), format.least) / 2;
    };
    double worst = 0, worst_slope = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (std::isnan(in[i])) {
        ASSERT_TRUE(std::isnan(out[i]) && std::isnan(slope[i])) << i;
        continue;
      }
      if (std::isinf(in[i])) {
        ASSERT_TRUE(in[i] > 0 ? out[i] == in[i] : std::isnan(out[i])) << "-infinity times 0, as in f32";
        ASSERT_EQ(slope[i], in[i] > 0 ? 1 : 0);
        continue;
      }
      const double cdf = std::erfc(-in[i] / std::sqrt(2.0)) / 2,
                   density = std::exp(-in[i] * in[i] / 2) / std::sqrt(2 * std::acos(-1.0));
      const double exact = in[i] * cdf, exact_slope = cdf + in[i] * density;
      worst = std::max(worst, std::abs(out[i] - exact) - half_ulp(exact));
      worst_slope = std::max(worst_slope, std::abs(slope[i] - exact_slope) - half_ulp(exact_slope));
      if (std::abs(in[i]) >= 5) {  // not a bit of the other side is left
        ASSERT_EQ(out[i], in[i] > 0 ? in[i] : 0) << in[i];
        ASSERT_EQ(slope[i], in[i] > 0 ? 1 : 0) << in[i];
      }
    }
    EXPECT_LE(worst, 8e-6) << name_of(format.dtype);
    EXPECT_LE(worst_slope, 1.4e-5) << name_of(format.dtype);
    RecordProperty(std::string(name_of(format.dtype)) + "_errors", fmt::format("{} {}", worst, worst_slope));
  }
}

}  // namespace
}  // namespace athanor
