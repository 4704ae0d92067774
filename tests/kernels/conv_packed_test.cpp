// Convolutions with packed weights, whatever code they take, against the same without, over random
// geometries.
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "autograd/conv.h"
#include "autograd/elementwise.h"
#include "kernels/conv.h"
#include "tests/support/compare.h"
#include "tests/support/conv_values.h"

namespace athanor::conv_packed_test {

using test::ConvCase;
using test::values;

/// Draws filters larger than the image, too, and groups of any size.
class Geometries {
 public:
  explicit Geometries(unsigned seed) : numbers_(seed) {}

  ConvCase draw() {
    while (true) {
      const std::int64_t groups = of({1, 1, 1, 2, 3, 5, 8}), c = groups * of({1, 2, 3, 4, 6, 8, 16, 17}),
                         k = groups * of({1, 2, 3, 4, 7, 8, 16, 33});
      const Shape x{of({1, 2, 3}), up_to(18), up_to(18), c},
          w{k, of({1, 2, 3, 3, 5, 7, 11}), of({1, 2, 3, 3, 5, 7, 11}), c / groups};
      Conv2dParams params{.stride = {up_to(3), up_to(3)}, .dilation = {up_to(2), up_to(2)}, .groups = groups};
      for (int i = 0; i < 2; ++i) params.padding[i] = up_to(w[1 + i] + 1) - 1;
      if (x[1] + 2 * params.padding[0] < (w[1] - 1) * params.dilation[0] + 1) continue;
      if (x[2] + 2 * params.padding[1] < (w[2] - 1) * params.dilation[1] + 1) continue;
      return {x, w, params};
    }
  }
  bool coin() { return up_to(2) == 1; }

 private:
  std::int64_t up_to(std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(1, most)(numbers_);
  }
  std::int64_t of(std::initializer_list<std::int64_t> choices) {
    return choices.begin()[up_to(std::ssize(choices)) - 1];
  }

  std::mt19937 numbers_;
};

/// Returns what was wrong, or nothing.
std::string try_geometries(int count, unsigned seed) {
  Geometries geometries(seed);
  for (int i = 0; i < count; ++i) {
    const ConvCase c = geometries.draw();
    const bool with_bias = geometries.coin(), with_residual = geometries.coin(), relu = geometries.coin();
    const Tensor x = values(c.x, DType::f32, 1), w = values(c.w, DType::f32, 2),
                 bias = with_bias ? values({c.w[0]}, DType::f32, 3) : Tensor(),
                 residual =
                     with_residual ? values(conv2d_shape(c.x, c.w, c.params), DType::f32, 4) : Tensor();
    Conv2dParams params = c.params;
    if (relu) params.activation = Activation::relu;
    const kernels::PackedWeights packed(w, bias);
    const Tensor y = Tensor::empty(conv2d_shape(c.x, c.w, c.params));
    kernels::conv2d_packed(cpu_context(), params, x, packed, residual, y);

    Tensor expected = conv2d(x, w, bias, c.params);
    if (with_residual) expected = expected + residual;
    if (relu) expected = athanor::relu(expected);
    // The numbers are few eighths: Winograd's transform alone rounds.
    const std::vector<double> is = y.to_vector(), must = expected.to_vector();
    for (std::size_t at = 0; at < is.size(); ++at) {
      if (std::abs(is[at] - must[at]) <= 1e-3) continue;
      return fmt::format(
          "{} x {} w {} stride {},{} padding {},{} dilation {},{} groups {}, bias {}, residual {}, relu {}: "
          "value {} must be {}, but is {}",
          i, c.x.str(), c.w.str(), params.stride[0], params.stride[1], params.padding[0], params.padding[1],
          params.dilation[0], params.dilation[1], params.groups, with_bias, with_residual, relu, at, must[at],
          is[at]);
    }
  }
  return "";
}

TEST(ConvPacked, EqualsUnpackedOverRandomGeometries) {
  EXPECT_EQ(try_geometries(500, 1), "");
}
TEST(ConvPacked, ExhaustiveEqualsUnpackedOverRandomGeometries) {
  EXPECT_EQ(try_geometries(100'000, 2), "");
}

}  // namespace athanor::conv_packed_test
