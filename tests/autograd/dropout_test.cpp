#include "autograd/dropout.h"

#include "kernels/cpu/context.h"
#include "kernels/random_op.h"
#include "tests/support/ops.h"

namespace athanor::dropout_test {

// Runs in a step of its own, and leaves the context's as it was.
class Dropout : public testing::Test {
 protected:
  void SetUp() override {
    step_.seed = 42;
    step_.applied_steps = 7;
    cpu_context().bind_step(&step_);
    cpu_context().set_random_ops(0);
  }
  void TearDown() override { cpu_context().bind_step(nullptr); }

  StepState step_;
};

TEST_F(Dropout, KeepsTheElementsTheirWordsSay) {
  const Tensor y = dropout(ones({101}), 0.25f, true);
  const RandomKey key{42, random_stream(RandomPurpose::dropout, 7, 0)};
  for (std::int64_t i = 0; i < 101; ++i) {
    const bool kept = philox_word(key, static_cast<std::uint64_t>(i)) >= 0x40000000u;
    EXPECT_EQ(y.data<float>()[i], kept ? 1 / 0.75f : 0.0f);
  }
}

TEST_F(Dropout, DropsTheExpectedShare) {
  const std::vector<double> y = dropout(ones({1 << 20}), 0.3f, true).to_vector();
  const auto dropped = static_cast<double>(std::count(y.begin(), y.end(), 0.0));
  EXPECT_NEAR(dropped / (1 << 20), 0.3, 5 * std::sqrt(0.21 / (1 << 20)));
}

TEST_F(Dropout, EdgesOfP) {
  const Tensor x = ones({5});
  EXPECT_TRUE(dropout(x, 0, true).same_as(x));
  EXPECT_TRUE(dropout(x, 0.5f, false).same_as(x));
  EXPECT_EQ(dropout(x, 1, true).to_vector(), std::vector<double>(5, 0.0));
  EXPECT_EQ(dropout(ones({0}), 0.5f, true).numel(), 0);
  EXPECT_THROW(dropout(x, 1.5f, true), ArgumentError);
  EXPECT_THROW(dropout(x, NAN, true), ArgumentError);
  EXPECT_THROW(dropout(randint({3}, {}, 0, 2), 0.5f, true), ArgumentError);
}

TEST_F(Dropout, MaskChangesWithStepSeedAndOpAndNothingElse) {
  const Tensor x = ones({4096});
  const Tensor first = dropout(x, 0.5f, true);
  EXPECT_FALSE(test::same_bits(first, dropout(x, 0.5f, true)));  // the step's second random op
  cpu_context().set_random_ops(0);
  {
    const test::Threads three(3);
    EXPECT_TRUE(test::same_bits(first, dropout(x, 0.5f, true)));
  }
  for (StepState other : {StepState{.seed = 43, .applied_steps = 7}, {.seed = 42, .applied_steps = 8}}) {
    cpu_context().bind_step(&other);
    cpu_context().set_random_ops(0);
    EXPECT_FALSE(test::same_bits(first, dropout(x, 0.5f, true)));
  }
}

// What ranks draw for their parts of a batch, one after the other: y, and the gradient of its sum.
std::array<Tensor, 2> by_parts(const Tensor& x, std::span<const std::int64_t> counts, std::int64_t samples) {
  std::vector<Tensor> parts, gradients;
  const std::int64_t rows = x.dim(0) / samples;
  std::int64_t first = 0;
  for (const std::int64_t count : counts) {
    cpu_context().set_random_ops(0);
    const SampleScope scope({first, count});
    const Tensor part = contiguous(narrow(x, 0, first * rows, count * rows));
    require_grad(part);
    parts.push_back(dropout(part, 0.4f, true));
    backward(parts.back(), ones(part.shape(), x.options()));
    gradients.push_back(grad_of(part));
    first += count;
  }
  return {cat(parts, 0), cat(gradients, 0)};
}

TEST_F(Dropout, MasksBelongToSamplesHoweverManyRanksThereAre) {
  const std::int64_t seven[] = {7}, uneven[] = {2, 1, 0, 4}, halves[] = {3, 4};
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    // One value a sample; an odd number; several rows a sample; more than a thread takes.
    for (const Shape& shape : {Shape{7}, Shape{7, 1, 1}, Shape{7, 3, 5}, Shape{21, 3}, Shape{7, 40001}}) {
      const Tensor x = ones(shape, {dtype, kCpu});
      cpu_context().set_random_ops(0);
      const Tensor whole = dropout(x, 0.4f, true);
      for (const std::span<const std::int64_t> counts :
           {std::span<const std::int64_t>(seven), std::span<const std::int64_t>(uneven),
            std::span<const std::int64_t>(halves)}) {
        const auto [y, dx] = by_parts(x, counts, 7);
        EXPECT_TRUE(test::same_bits(y, whole)) << shape.str();
        EXPECT_TRUE(test::same_bits(dx, whole)) << shape.str();
      }
    }
  }
  EXPECT_EQ(SampleScope::current().count, 0) << "a scope leaves nothing behind";
}

// As ranks with seeds of their own would.
TEST_F(Dropout, IfRowsAreNotSamplesRanksDrawTheirOwn) {
  const Tensor x = ones({4097});
  std::vector<std::vector<double>> masks;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    cpu_context().set_random_ops(0);
    const SampleScope scope({10 * rank, 10});
    masks.push_back(dropout(x, 0.5f, true).to_vector());
    for (std::int64_t other = 0; other < rank; ++other) {
      int same = 0;
      for (std::size_t i = 0; i < 4097; ++i)
        same += masks.back()[i] == masks[static_cast<std::size_t>(other)][i];
      EXPECT_NEAR(same, 2048.5, 5 * 32) << rank << " " << other;
    }
  }
  cpu_context().set_random_ops(0);
  EXPECT_EQ(dropout(x, 0.5f, true).to_vector(), masks[0]) << "the first is as if it were alone";
}

TEST_F(Dropout, HasTheSameMaskBackward) {
  const Tensor x = ones({4, 100});
  require_grad(x);
  const Tensor y = dropout(x, 0.5f, true);
  backward(y, ones({4, 100}));
  EXPECT_TRUE(test::same_bits(grad_of(x), y));
}

TEST_F(Dropout, HalfTypesRoundOnce) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor x = full({64}, 3, {dtype, kCpu});
    cpu_context().set_random_ops(0);
    const Tensor y = dropout(x, 0.1f, true);
    const double kept = full({}, 3 / 0.9, {dtype, kCpu}).item();
    for (const double value : y.to_vector()) EXPECT_TRUE(value == 0 || value == kept) << value;
  }
}

}  // namespace athanor::dropout_test
