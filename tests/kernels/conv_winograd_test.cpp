// Convolutions by Winograd's algorithm against the definition in f64: every pass, sizes that tiles do not
// divide, few tiles and many, dtypes, packed filters, threads.
#include "kernels/cpu/conv_winograd.h"

#include <bit>
#include <limits>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/winograd.h"
#include "kernels/packed_weights.h"
#include "tensor/half.h"
#include "tests/support/conv_values.h"

namespace athanor::conv_winograd_test {

using test::close;
using test::ConvCase;
using test::epsilon_of;
using test::name;
using test::same_bits;
using test::values;

std::vector<ConvCase> winograd_cases() {
  return {
      {{2, 9, 7, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}},
      {{3, 7, 9, 32}, {48, 3, 3, 32}, {.padding = {1, 1}}},  // a panel and a half
      {{2, 5, 6, 16}, {16, 3, 3, 16}, {}},                   // no padding
      {{2, 13, 11, 48}, {80, 3, 3, 48}, {.padding = {2, 2}}},
      {{1, 4, 4, 64}, {64, 3, 3, 64}, {.padding = {1, 1}}},       // one tile
      {{3, 1, 1, 16}, {32, 3, 3, 16}, {.padding = {1, 1}}},       // of which one pixel is seen
      {{1, 3, 18, 32}, {16, 3, 3, 32}, {.padding = {0, 2}}},      // one row, and padding that differs
      {{6, 16, 18, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}},     // more tiles than channels
      {{11, 13, 17, 96}, {32, 3, 3, 96}, {.padding = {1, 1}}},    // in blocks of 24
      {{7, 32, 31, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}},     // weights' gradient in two chunks
      {{11, 18, 19, 32}, {32, 3, 3, 32}, {.padding = {1, 1}}},    // in chunks that differ by a tile
      {{4, 21, 20, 16}, {48, 3, 3, 16}, {.padding = {1, 1}}},     // in chunks of three pieces
      {{4, 21, 20, 64}, {16, 3, 3, 64}, {.padding = {1, 1}}},     // of two panels
      {{2, 30, 30, 256}, {240, 3, 3, 256}, {.padding = {1, 1}}},  // weights' gradient in two blocks
  };
}

bool can_run(const ConvCase& c) {
  const Shape out = conv2d_shape(c.x, c.w, c.params);
  return cpu::winograd_fits(ConvSize(c.x, c.w, out, c.params));
}

using Operands = test::ConvOperands;

TEST(Winograd, EveryPassMatchesTheDefinition) {
  for (const ConvCase& c : winograd_cases()) {
    if (!can_run(c)) GTEST_SKIP() << "this CPU has no AVX2";
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(name(c, dtype, ConvImpl::winograd));
      const Operands operands(c, dtype);
      const Conv2dParams params = test::with(c.params, Activation::relu);
      const std::vector<Tensor> found = operands.passes(params, ConvImpl::winograd),
                                expected = operands.in_f64().passes(params, ConvImpl::reference);
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(
            close(found[i], expected[i], 4e-6 + (found[i].dtype() == DType::f32 ? 0 : epsilon_of(dtype))))
            << "result " << i;
    }
  }
}

TEST(Winograd, SameBitsByAnyNumberOfThreads) {
  for (const ConvCase& c : winograd_cases()) {
    if (!can_run(c)) GTEST_SKIP() << "this CPU has no AVX2";
    SCOPED_TRACE(name(c, DType::f32, ConvImpl::winograd));
    const Operands operands(c, DType::f32, test::rounded_values);
    test::expect_same_by_threads(
        [&] { return operands.passes(test::with(c.params, Activation::relu), ConvImpl::winograd); });
  }
}

TEST(Winograd, PackedFiltersAddBiasAndResidual) {
  for (const ConvCase& c : winograd_cases()) {
    if (!can_run(c)) GTEST_SKIP() << "this CPU has no AVX2";
    const Operands operands(c, DType::f32);
    const Tensor y = empty_like(operands.dy), again = empty_like(operands.dy);
    const kernels::PackedWeights packed(operands.w, operands.bias);
    Conv2dParams params = test::with(c.params, Activation::relu);
    params.impl = ConvImpl::winograd;
    kernels::conv2d_packed(cpu_context(), params, operands.x, packed, operands.dy, y);
    const Operands wide = operands.in_f64();
    const Tensor plain = wide.passes(c.params, ConvImpl::reference)[0];
    std::vector<double> expected = plain.to_vector();
    const std::vector<double> residual = wide.dy.to_vector();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = std::max(0.0, expected[i] + residual[i]);
    EXPECT_TRUE(close(y, expected, 4e-6)) << name(c, DType::f32, ConvImpl::winograd);
    kernels::conv2d_packed(cpu_context(), params, operands.x, packed, operands.dy, again);
    EXPECT_TRUE(same_bits(y, again));
  }
}

TEST(Winograd, NanReachesAllThatSeeItAndNothingBeyondItsTiles) {
  const ConvCase c{{1, 12, 12, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}};
  if (!can_run(c)) GTEST_SKIP() << "this CPU has no AVX2";
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
  std::vector<float> found;
  const Points points{all.data(), tiles.count, kWidth};
  const auto keep = [&] { found.insert(found.end(), all.begin(), all.end()); };
  code.inputs_to_points(images, pixels.data(), tiles, 1, 1, 0, tiles.count, points, 0), keep();
  code.write_outputs(images, tiles, 0, tiles.count, 0, points, {pixels.data(), pixels.data(), true},
                     y.data());
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
