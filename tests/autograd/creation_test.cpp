#include "autograd/grad_mode.h"
#include "kernels/cpu/context.h"
#include "kernels/random.h"
#include "tests/support/ops.h"

namespace athanor::creation_test {

using Values = std::vector<double>;

TEST(Creation, ConstantsAndRanges) {
  for (const DType dtype : kDTypes) {
    EXPECT_EQ(ones({2, 1}, {dtype, kCpu}).to_vector(), (Values{1, 1}));
    EXPECT_EQ(eye(2, {dtype, kCpu}).to_vector(), (Values{1, 0, 0, 1}));
    EXPECT_EQ(zeros({3}, {dtype, kCpu}).to_vector(), (Values{0, 0, 0}));
  }
  EXPECT_EQ(full({2}, -2.5).to_vector(), (Values{-2.5, -2.5}));
  EXPECT_EQ(full({}, 300, {DType::u8, kCpu}).item(), 255);
  EXPECT_EQ(arange(0, 3).to_vector(), (Values{0, 1, 2}));
  EXPECT_EQ(arange(3, 0, -1.5).to_vector(), (Values{3, 1.5}));
  EXPECT_EQ(arange(0, 1, 0.25, {DType::f64, kCpu}).to_vector(), (Values{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(arange(2, 1).shape(), Shape{0});
  EXPECT_EQ(eye(0).shape(), (Shape{0, 0}));
  EXPECT_THROW(arange(0, 1, 0), ArgumentError);
  EXPECT_THROW(arange(0, INFINITY), ArgumentError);
}

// Element i of every kind, from the stream's words.
TEST(Random, ElementsAreFunctionsOfTheirIndex) {
  const RandomKey key{11, 5};
  const std::int64_t n = 100'003;
  const Tensor u = rand({n}, key, -2, 3), z = randn({n}, key, 1, 2), k = randint({n}, key, -5, 100);
  for (std::int64_t i = 0; i < n; i += i < 20 || i > n - 20 ? 1 : 997) {
    const auto at = static_cast<std::uint64_t>(i);
    EXPECT_EQ(u.data<float>()[i], std::fma(random_uniform(philox_word(key, at)), 5.0f, -2.0f));
    const NormalPair pair = random_normals(philox_word(key, at & ~1ull), philox_word(key, at | 1));
    EXPECT_EQ(z.data<float>()[i], std::fma(i % 2 == 0 ? pair.first : pair.second, 2.0f, 1.0f));
    EXPECT_EQ(k.data<std::int64_t>()[i],
              -5 + static_cast<std::int64_t>(random_below(philox_word64(key, at), 105)));
  }
}

TEST(Random, SameBitsForAnyThreadCountAndLength) {
  const auto all = [](std::int64_t n, DType dtype) {
    return std::vector{rand({n}, {1, 2}, 0, 1, {dtype, kCpu}), randn({n}, {1, 2}, 0, 1, {dtype, kCpu})};
  };
  for (const DType dtype : test::kFloating) {
    const test::Threads one(1);
    const std::vector<Tensor> reference = all(200'001, dtype);
    for (const int count : {2, 3, 7}) {
      const test::Threads several(count);
      for (const std::int64_t n : {200'001, 99'998, 3, 1, 0}) {
        const std::vector<Tensor> again = all(n, dtype);
        for (std::size_t i = 0; i < again.size(); ++i) {
          EXPECT_TRUE(test::same_bits(reference[i].view_as_strided({n}, {1}, 0), again[i]));
        }
      }
    }
  }
}

// Numbers are drawn four at a time, and many blocks of four together.
TEST(Random, WritesNothingBehindTheLastElement) {
  for (const std::int64_t n : {1, 2, 3, 5, 254, 255, 257, 258, 515}) {
    const Tensor all = full({n + 8}, 7), part = all.view_as_strided({n}, {1}, 0);
    const auto behind = [&] {
      const Values values = all.to_vector();
      return Values(values.end() - 8, values.end());
    };
    kernels::random_uniform(cpu_context(), {1, 2}, 0, 1, part);
    EXPECT_EQ(behind(), Values(8, 7)) << n;
    kernels::random_normal(cpu_context(), {1, 2}, 0, 1, part);
    EXPECT_EQ(behind(), Values(8, 7)) << n;
  }
}

TEST(Random, SeedsAndStreamsDiffer) {
  const Tensor a = rand({64}, {1, 1});
  EXPECT_FALSE(test::same_bits(a, rand({64}, {2, 1})));
  EXPECT_FALSE(test::same_bits(a, rand({64}, {1, 2})));
}

TEST(Random, UniformStaysBelowItsEndInEveryDtype) {
  for (const DType dtype : test::kFloating) {
    for (const auto& [low, high] : {std::pair{0.0, 1.0}, {-1.0, 0.0}, {1000.0, 1001.0}, {-3.0, -2.0}}) {
      const Values values = rand({40'000}, {3, 0}, low, high, {dtype, kCpu}).to_vector();
      EXPECT_GE(*std::min_element(values.begin(), values.end()), low) << name_of(dtype);
      EXPECT_LT(*std::max_element(values.begin(), values.end()), high) << name_of(dtype);
    }
  }
}

TEST(Random, IntegersCoverTheirRangeEvenly) {
  std::vector<int> seen(7);
  for (const double value : randint({70'000}, {4, 0}, -3, 4).to_vector()) {
    ++seen.at(static_cast<std::size_t>(value + 3));
  }
  for (const int count : seen) EXPECT_NEAR(count, 10'000, 500);
  EXPECT_EQ(randint({5}, {}, INT64_MIN, INT64_MAX).shape(), Shape{5});
  EXPECT_EQ(randint({1}, {}, 255, 256, {DType::u8, kCpu}).item(), 255);
  EXPECT_THROW(randint({1}, {}, 0, 257, {DType::u8, kCpu}), ArgumentError);
  EXPECT_THROW(randint({1}, {}, 0, 0), ArgumentError);
}

TEST(Random, PermutationIsPhilox) {
  EXPECT_EQ(randperm(0, {}).shape(), Shape{0});
  const std::vector<std::int64_t> expected = philox_permutation(100, {1, 2});
  EXPECT_EQ(randperm(100, {1, 2}).to_vector(), Values(expected.begin(), expected.end()));
  EXPECT_THROW(randperm(-1, {}), ArgumentError);
}

TEST(Creation, InferenceModeMarksWhatItMakes) {
  const InferenceMode inference;
  EXPECT_STREQ(rand({1}, {}).made_by(), "rand");
}

}  // namespace athanor::creation_test
