#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pipeline.h"

namespace {

std::string words(const Plan& plan) {
  std::string all;
  for (const Work& work : plan)
    all += std::string(all.empty() ? "" : " ") + work.pass + std::to_string(work.micro_batch);
  return all;
}

std::vector<Plan> all_stages(int stages, int micro_batches) {
  std::vector<Plan> plans;
  for (int stage = 0; stage < stages; ++stage)
    plans.push_back(one_forward_one_backward(stages, stage, micro_batches));
  return plans;
}

Plan plan_of(const std::string& text) {
  Plan plan;
  for (std::size_t at = 0; at < text.size(); at += 3) plan.push_back({text[at], text[at + 1] - '0'});
  return plan;
}

TEST(Pipeline, ForwardsFirst) {
  EXPECT_EQ(words(forwards_first(3)), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(words(forwards_first(1)), "F0 B0");
}

TEST(Pipeline, OneForwardOneBackward) {
  EXPECT_EQ(words(one_forward_one_backward(4, 3, 3)), "F0 B0 F1 B1 F2 B2")
      << "the last stage can go back at once";
  EXPECT_NE(words(one_forward_one_backward(4, 2, 4)), "F0 F1 F2 B0 F3 B1 B2 B3")
      << "stage 2 of 4 needs one forward pass before it alternates, P - 1 - s, and not two: the first pair "
         "begins with a forward pass of its own";
  EXPECT_EQ(words(one_forward_one_backward(4, 2, 4)), "F0 F1 B0 F2 B1 F3 B2 B3") << "stage 2 of 4";
  EXPECT_EQ(words(one_forward_one_backward(4, 0, 5)), "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4") << "stage 0 of 4";
  EXPECT_EQ(words(one_forward_one_backward(4, 0, 2)), "F0 F1 B0 B1") << "fewer micro-batches than stages";
  EXPECT_EQ(words(one_forward_one_backward(1, 0, 2)), "F0 B0 F1 B1") << "one stage";
}

TEST(Pipeline, CountsTurns) {
  EXPECT_EQ(turns({plan_of("F0 B0 F1 B1")}), 4) << "one stage never waits";
  EXPECT_GT(turns({plan_of("F0 B0"), plan_of("F0 B0")}), 3)
      << "what a stage computes arrives in the next turn: stage 1 cannot use it in the turn in which stage 0 "
         "computes it";
  EXPECT_EQ(turns({plan_of("F0 B0"), plan_of("F0 B0")}), 4) << "F0, F0, B0, B0, one after the other";
  for (const int stages : {2, 4, 8}) {
    for (const int micro_batches : {1, 3, 8, 32}) {
      const int expected = 2 * (micro_batches + stages - 1);
      const std::vector<Plan> simple(static_cast<std::size_t>(stages), forwards_first(micro_batches));
      ASSERT_EQ(turns(simple), expected) << "forward passes first, " << stages << " stages, " << micro_batches
                                         << " micro-batches: 2 (m + P - 1)";
      ASSERT_EQ(turns(all_stages(stages, micro_batches)), expected)
          << "one forward, one backward, " << stages << " stages, " << micro_batches
          << " micro-batches: 2 (m + P - 1), too";
    }
  }
}

TEST(Pipeline, NeverWaitsInACircle) {
  EXPECT_EQ(turns({plan_of("B0 F0"), plan_of("F0 B0")}), -1)
      << "stage 0 waits for the gradient of stage 1, and stage 1 for the result of stage 0: no turn will "
         "come";
  EXPECT_EQ(turns({plan_of("F0 B0"), plan_of("F1 F0 B0 B1")}), -1)
      << "stage 1 waits for a micro-batch that stage 0 never computes";
}

TEST(Pipeline, KeepsFewActivations) {
  EXPECT_EQ(most_kept(plan_of("F0 F1 B0 F2 B1 B2")), 2)
      << "0 and 1, then 1 and 2: a backward pass ends what its forward pass began";
  for (const int stages : {1, 4, 8}) {
    for (const int micro_batches : {1, 4, 32}) {
      ASSERT_EQ(most_kept(forwards_first(micro_batches)), micro_batches)
          << "forward passes first keep all " << micro_batches;
      for (int stage = 0; stage < stages; ++stage) {
        ASSERT_EQ(most_kept(one_forward_one_backward(stages, stage, micro_batches)),
                  std::min(stages - stage, micro_batches))
            << "stage " << stage << " of " << stages << ", " << micro_batches
            << " micro-batches: at most P - s of them are kept";
      }
    }
  }
}

}  // namespace
