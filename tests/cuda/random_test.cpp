#include "kernels/random.h"

#include "tests/cuda/ops.h"

namespace athanor::random_test {

using test::context;
using RandomOnDevice = test::DeviceTest;

constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 4, 5, 127, 1024, 4099};

// The same stream here and there, from aligned starts and others.
template <class F> void expect_same_bits(DType dtype, const F& generate) {
  for (const std::int64_t n : kSizes) {
    for (const std::int64_t off : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} {} off {}", dtype, n, off));
      test::expect_as_on_cpu([&](const auto& on) {
        const Tensor all = on(Tensor::zeros({n + off + 1}, {dtype}));
        generate(on.context, all.view_as_strided({n}, {1}, off));
        return std::vector{all};
      });
    }
  }
}

TEST_F(RandomOnDevice, UniformHasTheBitsOfTheCpu) {
  for (const DType dtype : test::kFloating) {
    for (const auto& [low, high] : {std::pair{0.0, 1.0}, std::pair{-3.0, 0.5}, std::pair{1.0, 1.0078125}}) {
      expect_same_bits(dtype, [&, low = low, high = high](auto& where, const Tensor& y) {
        kernels::random_uniform(where, {7, 1ull << 40}, low, high, y);
      });
    }
  }
}

TEST_F(RandomOnDevice, NormalHasTheBitsOfTheCpu) {
  for (const DType dtype : test::kFloating) {
    expect_same_bits(dtype, [](auto& where, const Tensor& y) {
      kernels::random_normal(where, {1ull << 60, 3}, 0.5, 2, y);
    });
  }
}

TEST_F(RandomOnDevice, IntegersHaveTheBitsOfTheCpu) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min(), kMax = -(kMin + 1);
  for (const DType dtype : kDTypes) {
    for (const auto& [low, high] : {std::pair<std::int64_t, std::int64_t>{0, 2}, {-100, 100}, {kMin, kMax}}) {
      expect_same_bits(dtype, [&, low = low, high = high](auto& where, const Tensor& y) {
        kernels::random_integers(where, {5, 6}, low, high, y);
      });
    }
  }
}

// Random123's known answer for a counter and a key of zeros.
TEST_F(RandomOnDevice, FirstWordsAreThoseOfThePaper) {
  const Tensor y = Tensor::empty({4}, {DType::f32, test::device()});
  kernels::random_uniform(context(), {0, 0}, 0, 1, y);
  const std::uint32_t words[] = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
  const auto values = y.to_vector();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(values[i], (words[i] >> 8) * 0x1p-24);
}

}  // namespace athanor::random_test
