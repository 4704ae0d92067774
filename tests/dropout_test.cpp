#include "autograd/dropout.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "autograd/creation.h"
#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "autograd/shape.h"
#include "kernels/context.h"
#include "tests/support/cases.h"
#include "tests/support/compare.h"

namespace athanor {
namespace {

using In = std::span<const Tensor>;

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

TEST_F(Dropout, DropsTheShareItShould) {
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
  const int threads = cpu_context().threads();
  cpu_context().set_threads(3);
  EXPECT_TRUE(test::same_bits(first, dropout(x, 0.5f, true)));
  cpu_context().set_threads(threads);
  for (StepState other : {StepState{.seed = 43, .applied_steps = 7}, {.seed = 42, .applied_steps = 8}}) {
    cpu_context().bind_step(&other);
    cpu_context().set_random_ops(0);
    EXPECT_FALSE(test::same_bits(first, dropout(x, 0.5f, true)));
  }
}

TEST_F(Dropout, GradcheckAndSameMaskBackward) {
  for (const test::Layout layout : {test::Layout::dense, test::Layout::transposed}) {
    const Tensor x = test::filled({{5, 7}, layout}, DType::f64);
    require_grad(x);
    gradcheck([](In in) { return dropout(dropout(in[0], 0.4f, true), 0.2f, true); }, std::array{x});
  }
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

}  // namespace
}  // namespace athanor
