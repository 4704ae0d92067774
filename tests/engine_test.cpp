#include "autograd/engine.h"

#include <gtest/gtest.h>

#include "autograd/elementwise.h"

namespace athanor {
namespace {

Tensor leaf(std::vector<float> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  Tensor x = Tensor::from(values, {n});
  require_grad(x);
  return x;
}

std::vector<double> values_of(const Tensor& x) {
  return x.to_vector();
}

TEST(Engine, WaitsForEveryContribution) {
  // The classic mistake hands b's gradient on before c's second contribution has arrived.
  const Tensor a = leaf({1, 2});
  const Tensor b = a + a;
  const Tensor c = b + b;
  backward(c, Tensor::from(std::vector<float>{1, 1}, {2}));
  EXPECT_EQ(values_of(grad_of(a)), (std::vector<double>{4, 4}));
}

TEST(Engine, AccumulatesUntilZeroed) {
  const Tensor a = leaf({3});
  backward(a * a);
  EXPECT_EQ(grad_of(a).item(), 6);
  backward(a * a);
  EXPECT_EQ(grad_of(a).item(), 12);
  zero_grad(a);
  EXPECT_FALSE(grad_of(a).defined());
  backward(a * a);
  EXPECT_EQ(grad_of(a).item(), 6);
}

TEST(Engine, MillionNodesRunAndDropWithoutRecursion) {
  const Tensor a = leaf({1});
  for (const bool run : {true, false}) {
    Tensor y = a + a;
    for (int i = 1; i < 1'000'000; ++i) y = y + a;
    if (run) {
      backward(y);
      EXPECT_EQ(grad_of(a).item(), 1'000'001);
    }
  }
}

TEST(Engine, SecondPassNeedsRetainGraph) {
  const Tensor a = leaf({2});
  const Tensor y = a * a;
  backward(y, {}, {.retain_graph = true});
  backward(y);
  EXPECT_EQ(grad_of(a).item(), 8);
  EXPECT_THROW(backward(y), ArgumentError);
  EXPECT_THROW(backward(y, {}, {.create_graph = true}), ArgumentError);
}

TEST(Engine, SavedTensorWrittenInPlaceIsAnError) {
  const Tensor a = leaf({2});
  const Tensor y = a * a;
  a.bump_version();
  EXPECT_THROW(backward(y), ArgumentError);
}

TEST(Engine, InferenceModeRecordsNothing) {
  const Tensor a = leaf({2});
  const TapeCounters before = tape_counters();
  Tensor y;
  {
    const InferenceMode inference;
    y = relu(a * a);
  }
  EXPECT_EQ(tape_counters().nodes, before.nodes);
  EXPECT_EQ(tape_counters().saved_tensors, before.saved_tensors);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_NO_THROW(a + y);
  EXPECT_THROW(a * y, ArgumentError);
}

}  // namespace
}  // namespace athanor
