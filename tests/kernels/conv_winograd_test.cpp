// Convolutions by Winograd's algorithm, beyond what conv_list_test.cpp tests of every implementation.
#include <bit>
#include <limits>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/winograd.h"
#include "tensor/half.h"
#include "tests/support/conv_values.h"

namespace athanor::conv_winograd_test {

using test::close;
using test::ConvCase;
using test::name;

using Operands = test::ConvOperands;

TEST(Winograd, NanReachesAllThatSeeItAndNothingBeyondItsTiles) {
  const ConvCase c{{1, 12, 12, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}};
  if (!cpu::has_avx2()) GTEST_SKIP() << "this CPU has no AVX2";
  const Operands operands(c, DType::f32);
  operands.x.data<float>()[(5 * 12 + 5) * 16] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> y =
      operands.passes(test::with(c.params, Activation::relu), ConvImpl::winograd)[0].to_vector();
  for (std::int64_t p = 0; p < 12; ++p) {
    for (std::int64_t q = 0; q < 12; ++q) {
      const bool nan = std::isnan(y[static_cast<std::size_t>((p * 12 + q) * 16 + 3)]);
      if (std::abs(p - 5) <= 1 && std::abs(q - 5) <= 1) {
        EXPECT_TRUE(nan) << "a ReLU lets it pass: " << p << ' ' << q;
      }
      if (p >= 8 || q >= 8) {
        EXPECT_FALSE(nan) << p << ' ' << q;
      }
    }
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
// The transforms of a T, of every kind of tile, as numbers.
template <class T> std::vector<float> transformed(const cpu::winograd::Transforms<T>& code) {
  using namespace cpu::winograd;
  const Images images{2, 9, 7, 32};
  const Tiles tiles(images);
  std::vector<T> pixels(static_cast<std::size_t>(images.n * images.h * images.w * images.c)),
      filters(32 * 9 * 32), y(pixels.size()), dw(filters.size());
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = T(static_cast<float>(i * 37 % 1009) / 500 - 1);
  for (std::size_t i = 0; i < filters.size(); ++i) filters[i] = T(static_cast<float>(i * 53 % 997) / 500 - 1);
  pixels[500] = T(std::numeric_limits<float>::quiet_NaN());
  std::vector<float> all(static_cast<std::size_t>(Points::floats(tiles.count, kWidth)));
  std::vector<float> bias(static_cast<std::size_t>(images.c)), found;
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(pixels[i]);
  const Points points{all.data(), tiles.count, kWidth};
  const auto keep = [&] { found.insert(found.end(), all.begin(), all.end()); };
  code.inputs_to_points(images, pixels.data(), tiles, 1, 1, 0, tiles.count, points, 0), keep();
  code.write_outputs(images, tiles, 0, tiles.count, 0, points, {bias.data(), pixels.data(), true}, y.data());
  code.gradients_to_points(images, pixels.data(), tiles, 0, tiles.count, points, 0), keep();
  for (const bool backward : {false, true}) {
    std::vector<float> room(static_cast<std::size_t>(Points::floats(32, kWidth)));
    code.filters_to_points({32, 32, 32, backward}, filters.data(), 0, {room.data(), 32, kWidth});
    found.insert(found.end(), room.begin(), room.end());
    code.write_gradient(32, 0, 32, 0, {room.data(), 32, kWidth}, backward, dw.data());
  }
  for (const T value : y) found.push_back(static_cast<float>(value));
  for (const T value : dw) found.push_back(static_cast<float>(value));
  return found;
}

template <class T> void expect_same_transforms() {
  const std::vector<float> narrow = transformed(cpu::winograd::avx2::transforms<T>()),
                           wide = transformed(cpu::winograd::avx512::transforms<T>());
  ASSERT_EQ(narrow.size(), wide.size());
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    if (std::isnan(narrow[i]) && std::isnan(wide[i])) continue;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(narrow[i]), std::bit_cast<std::uint32_t>(wide[i])) << i;
  }
}

TEST(Winograd, Avx2AndAvx512TransformToTheSameBits) {
  if (!cpu::has_avx512()) GTEST_SKIP() << "this CPU has no AVX-512";
  expect_same_transforms<float>();
  expect_same_transforms<Half>();
  expect_same_transforms<BFloat16>();
}
#endif

TEST(Winograd, LeavesEmptyImagesToOthers) {
  const ConvCase c{{4, 0, 8, 16}, {16, 3, 3, 16}, {.padding = {2, 2}}};  // outputs that see only padding
  const Operands operands(c, DType::f32);
  const Conv2dParams params = test::with(c.params, Activation::relu);
  const std::vector<Tensor> found = operands.passes(params, ConvImpl::automatic),
                            expected = operands.in_f64().passes(params, ConvImpl::reference);
  EXPECT_GT(found[0].numel(), 0);
  EXPECT_TRUE(close(found[0], expected[0], 1e-6));
  EXPECT_TRUE(close(found[2], expected[2], 1e-6));
}

TEST(Winograd, RejectsUnsupportedRequests) {
  const auto refused = [](const ConvCase& c, DType dtype) {
    const Operands operands(c, dtype);
    EXPECT_THROW(operands.passes(c.params, ConvImpl::winograd), BackendError)
        << name(c, dtype, ConvImpl::winograd);
  };
  refused({{1, 8, 8, 16}, {16, 5, 5, 16}, {}}, DType::f32);
  refused({{1, 8, 8, 8}, {16, 3, 3, 8}, {}}, DType::f32);
  refused({{1, 8, 8, 16}, {8, 3, 3, 16}, {}}, DType::f32);
  refused({{1, 8, 8, 16}, {16, 3, 3, 16}, {.stride = {2, 1}}}, DType::f32);
  refused({{1, 8, 8, 16}, {16, 3, 3, 16}, {.dilation = {1, 2}}}, DType::f32);
  refused({{1, 8, 8, 32}, {32, 3, 3, 16}, {.groups = 2}}, DType::f32);
  refused({{1, 8, 8, 16}, {16, 3, 3, 16}, {}}, DType::f64);
  refused({{4, 0, 8, 16}, {16, 3, 3, 16}, {.padding = {2, 2}}}, DType::f32);
}

}  // namespace athanor::conv_winograd_test
