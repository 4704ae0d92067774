// Small images with much padding: filter taps that meet nothing else, and what a library leaves unwritten
// there.
#include "tests/support/conv_values.h"

namespace athanor::conv_padding_test {

using Geometry = test::ConvCase;

template <class F> void for_each_pair(std::initializer_list<std::int64_t> values, const F& f) {
  for (const std::int64_t a : values)
    for (const std::int64_t b : values) f(a, b);
}

/// Whether the output has a pixel.
bool fits(const Geometry& g) {
  for (int axis = 0; axis < 2; ++axis) {
    if (g.x[1 + axis] + 2 * g.params.padding[axis] < g.params.dilation[axis] * (g.w[1 + axis] - 1) + 1)
      return false;
  }
  return true;
}

std::vector<Geometry> geometries() {
  std::vector<Geometry> all;
  using Pair = std::pair<std::int64_t, std::int64_t>;
  for (const Pair& channels : {Pair{4, 64}, {16, 16}, {3, 8}})
    for (const Pair& window : {Pair{3, 3}, {1, 3}, {5, 5}})
      for_each_pair({1, 2, 3}, [&](std::int64_t h, std::int64_t w) {
        for_each_pair({1, 2}, [&](std::int64_t sh, std::int64_t sw) {
          for_each_pair({0, 1, 2}, [&](std::int64_t ph, std::int64_t pw) {
            for (const std::int64_t dilation : {1, 2}) {
              const Geometry g{{2, h, w, channels.first},
                               {channels.second, window.first, window.second, channels.first},
                               {.stride = {sh, sw}, .padding = {ph, pw}, .dilation = {dilation, dilation}}};
              if (fits(g)) all.push_back(g);
            }
          });
        });
      });
  return all;
}

Tensor uneven(const Shape& shape, DType dtype, int seed) {
  return test::filled({shape}, dtype, {static_cast<std::uint64_t>(seed)});
}

class ConvPadding : public testing::TestWithParam<DType> {};

TEST_P(ConvPadding, EveryGeometryMatchesTheReference) {
  const DType dtype = GetParam();
  const double tolerance = test::epsilon_of(dtype) + 200 * test::epsilon_of(DType::f32);
  int wrong = 0;
  const std::vector<Geometry> all = geometries();
  for (const Geometry& g : all) {
    const test::ConvOperands operands(g, dtype, uneven);
    const std::vector<Tensor> found = operands.passes(g.params, ConvImpl::automatic),
                              expected = operands.passes(g.params, ConvImpl::reference);
    const bool right = std::ranges::equal(found, expected, [&](const Tensor& a, const Tensor& b) {
      return static_cast<bool>(test::close(a, b, tolerance));
    });
    if (right) continue;
    if (++wrong <= 5) {
      ADD_FAILURE() << fmt::format("x {} w {} stride {} {} padding {} {} dilation {}", g.x, g.w,
                                   g.params.stride[0], g.params.stride[1], g.params.padding[0],
                                   g.params.padding[1], g.params.dilation[0]);
    }
  }
  EXPECT_EQ(wrong, 0) << "of " << all.size();
  EXPECT_GT(all.size(), 1500u);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ConvPadding, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

}  // namespace athanor::conv_padding_test
