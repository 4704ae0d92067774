#include "kernels/cuda/plan_choice.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include <cuda_runtime.h>

#include "tensor/graph.h"
#include "tests/cuda/plan_choice.h"
#include "tests/support/errors.h"

namespace athanor::plan_choice_test {

using namespace test;

using PlanChoice = PlanChoiceTest;

TEST_F(PlanChoice, TakesTheFastestCandidate) {
  EXPECT_EQ(chosen({context(), {kSlow, kQuick, kSlow}}), kQuick);
  const Choice<Plan>& choice = *cache.find({0});
  EXPECT_GT(choice.vendor_ms, 0);
  EXPECT_LT(choice.vendor_ms, choice.own_ms);
  EXPECT_FALSE(choice.own_is_faster());
  EXPECT_EQ(stats.tuned, 1);
}

TEST(PlanWays, TheOneThatRanBeforeIsAskedFirstAndEachOnce) {
  using enum cuda::PlanWay;
  const auto asked = [](cuda::PlanWay known, std::optional<cuda::PlanWay> runs) {
    std::vector<cuda::PlanWay> ways;
    EXPECT_EQ(cuda::way_that_runs(known,
                                  [&](cuda::PlanWay way) {
                                    ways.push_back(way);
                                    return way == runs;
                                  }),
              runs);
    return ways;
  };
  using Ways = std::vector<cuda::PlanWay>;
  EXPECT_EQ(asked(properties, properties), Ways({properties}));
  EXPECT_EQ(asked(properties, handle), Ways({properties, handle}));
  EXPECT_EQ(asked(properties, text), Ways({properties, handle, text}));
  EXPECT_EQ(asked(properties, std::nullopt), Ways({properties, handle, text}));
  EXPECT_EQ(asked(text, text), Ways({text}));
  EXPECT_EQ(asked(text, handle), Ways({text, properties, handle}));
}

TEST_F(PlanChoice, PlansThatAreAllRefusedAreMadeInTheNextWay) {
  using enum cuda::PlanWay;
  cuda::PlanWay known = properties;
  Steps steps{context(), {kSlow, kQuick}};
  steps.known = &known, steps.broken_ways = {properties};
  EXPECT_EQ(chosen(steps), kQuick);
  EXPECT_EQ(known, handle);
  EXPECT_EQ(stats.by_handle, 1);
  EXPECT_EQ(stats.refused, 0) << "a plan runs, so nothing is wrong";
  EXPECT_TRUE(kept());
  const std::vector<std::string> told = lines("signature");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(names(told[0], {"a handle", "the device's properties", "does not run"}));

  steps.asked_ways.clear(), steps.name = "the next";
  EXPECT_EQ(chosen(steps, 1), kQuick);
  EXPECT_EQ(steps.asked_ways, std::vector{handle}) << "the way that runs is known";
  steps.asked_ways.clear(), steps.broken_ways = {properties, handle}, steps.name = "the third";
  EXPECT_EQ(chosen(steps, 2), kQuick);
  EXPECT_EQ(known, text);
  EXPECT_EQ(stats.by_text, 1);
}

TEST_F(PlanChoice, PlansThatAreRefusedInEveryWayAreReportedOnceAndChangeNothing) {
  using enum cuda::PlanWay;
  cuda::PlanWay known = properties;
  Steps steps{context(), {kQuick, kSlow}};
  steps.known = &known, steps.broken_ways = {properties, handle, text};
  EXPECT_EQ(chosen(steps), 0u);
  EXPECT_EQ(known, properties);
  EXPECT_EQ(steps.asked_ways, (std::vector{properties, handle, text}));
  EXPECT_EQ(stats.refused, 1);
  EXPECT_EQ(lines("signature").size(), 1u);
}

TEST_F(PlanChoice, AWayWithoutAPlanIsNotOneThatRuns) {
  using enum cuda::PlanWay;
  cuda::PlanWay known = properties;
  Steps steps{context(), {kQuick}};
  steps.known = &known, steps.broken_ways = {properties}, steps.empty_ways = {handle};
  EXPECT_EQ(chosen(steps), kQuick);
  EXPECT_EQ(known, text);
}

TEST_F(PlanChoice, APlanThatRunsKeepsItsWay) {
  cuda::PlanWay known = cuda::PlanWay::properties;
  Steps steps{context(), {kBroken, kQuick}};
  steps.known = &known;
  EXPECT_EQ(chosen(steps), kQuick);
  steps.candidates = {}, steps.name = "without a plan";
  EXPECT_EQ(chosen(steps, 1), 0u);
  EXPECT_EQ(steps.asked_ways, std::vector(2, cuda::PlanWay::properties));
}

TEST_F(PlanChoice, AGuessThatIsRefusedWhenItRunsIsMadeInTheNextWay) {
  using enum cuda::PlanWay;
  context().deterministic = true;
  cuda::PlanWay known = properties;
  Steps steps{context(), {kQuick}};
  steps.known = &known, steps.broken_ways = {properties, handle};
  steps.added_to = Tensor::zeros({4}, {DType::f32, test::device()});
  EXPECT_EQ(serve(steps), cuda::Answer::done);
  EXPECT_EQ(known, text);
  EXPECT_EQ(std::count(steps.written.begin(), steps.written.end(), steps.added_to.raw_data()), 2)
      << "the one that was refused, and the one that ran: trials go elsewhere";
  cache.clear();
  known = properties, steps.broken_ways = {properties, handle, text};
  try {
    serve(steps);
    FAIL() << "no plan ran";
  } catch (const BackendError& error) {
    EXPECT_TRUE(names(error.what(), {"signature", "does not run"}));
  }
}

TEST_F(PlanChoice, ReportsEachMeasurement) {
  std::vector<cuda::MeasuredPlan> measured;
  options.on_measured = [&](const cuda::MeasuredPlan& one) { measured.push_back(one); };
  EXPECT_EQ(chosen({context(), {kBroken, kSlow, kQuick}, kQuick}), kQuick);
  ASSERT_EQ(measured.size(), 4u);  // the last one: ours
  const int candidates[] = {0, 1, 2, -1};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(measured[i].signature, "signature");
    EXPECT_EQ(measured[i].candidate, candidates[i]);
    if (i < 3) {
      EXPECT_EQ(std::isinf(measured[i].ms), i == 0) << i;
    }
  }
  EXPECT_EQ(measured[2].ms, cache.find({0})->vendor_ms);
  measured.clear();
  (void)chosen({context(), {kSlow}});
  EXPECT_TRUE(measured.empty()) << "a known signature is not measured again";
}

TEST_F(PlanChoice, KnowsWhereOurOwnKernelIsFaster) {
  EXPECT_TRUE(choose({context(), {kSlow}, kQuick}).own_is_faster());
}

TEST_F(PlanChoice, SkipsPlansThatFailOrAreNotAccepted) {
  EXPECT_EQ(chosen({context(), {kBroken, kQuick, kSlow}, kSlow, kQuick}), kSlow);
  EXPECT_EQ(chosen({context(), {kQuick}, kSlow, kQuick, "refused"}, 1), 0u);
  const Choice<Plan>& broken = choose({context(), {kBroken}, kSlow, 0, "broken"}, 2);
  EXPECT_FALSE(broken.plan);
  EXPECT_FALSE(std::filesystem::exists(folder.path_of("broken")));  // it may run the next time
  EXPECT_FALSE(choose({context(), {kUnjudged}, kSlow, 0, "unjudged"}, 3).plan);
  EXPECT_FALSE(std::filesystem::exists(folder.path_of("unjudged")));
}

TEST_F(PlanChoice, FailedMeasurementsAreNotErrorsAndNotStored) {
  EXPECT_EQ(chosen({context(), {kUntestable, kQuick}}), kQuick);
  EXPECT_FALSE(kept());
  EXPECT_EQ(chosen({context(), {kHuge, kQuick}}, 1), kQuick);
  EXPECT_FALSE(kept());
  Steps left_out{context(), {kQuick}};
  left_out.certain = false;
  EXPECT_EQ(chosen(left_out, 2), kQuick);
  left_out.candidates = {};
  EXPECT_EQ(chosen(left_out, 3), 0u);
  EXPECT_FALSE(kept());
}

TEST_F(PlanChoice, WithoutMemoryToMeasureTheFirstGuessIsUsed) {
  Allocator& allocator = allocator_of(test::device());
  (void)context();  // has memory of its own
  allocator.trim();
  allocator.set_limit(1 << 20);  // the cache cannot be written over
  const Steps steps{context(), {kSlow, kQuick}};
  EXPECT_EQ(chosen(steps), kSlow);
  allocator.set_limit(0);
  EXPECT_EQ(steps.runs, 0u);
  EXPECT_FALSE(kept());
  cache.clear();
  EXPECT_EQ(chosen(steps), kQuick);
}

TEST_F(PlanChoice, MeasuringTakesNothingFromTheGraphsPool) {
  (void)context();  // has memory of its own
  GraphMemory pool(test::device());
  const GraphMemory::Use use(pool);
  choose({context(), {kSlow, kQuick}});
  EXPECT_EQ(pool.held_bytes(), 0);
}

TEST_F(PlanChoice, RunsThePlanOrOurOwnKernel) {
  const Steps steps{context(), {kQuick}};
  EXPECT_EQ(serve(steps), cuda::Answer::done);
  EXPECT_EQ(stats.calls, 1);
  cache.clear();
  EXPECT_EQ(serve({context(), {}, kSlow, 0, "none"}), cuda::Answer::no_plan);
  cache.clear();
  const Steps slow{context(), {kSlow}, kQuick, 0, "slow"};
  EXPECT_EQ(serve(slow), cuda::Answer::own_is_faster);
  EXPECT_EQ(serve(slow, false), cuda::Answer::done);
  EXPECT_EQ(stats.calls, 2);
}

TEST_F(PlanChoice, APlanFromDiskThatDoesNotRunIsChosenAgainOnce) {
  ASSERT_TRUE(folder.save("signature", {std::to_string(kBroken), 1, 2}));
  const Steps steps{context(), {kQuick}};
  EXPECT_EQ(serve(steps), cuda::Answer::done);
  EXPECT_EQ(cache.find({0})->plan->bytes, kQuick);
  EXPECT_EQ(stats.disk_rejected, 1);
  EXPECT_EQ(folder.load("signature").second.plan, std::to_string(kQuick));
  EXPECT_EQ(stats.refused, 1);
  const std::vector<std::string> told = lines();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(names(told[0], {"signature", folder.path_of("signature").string(), "does not run"}));
  cache.clear();
  EXPECT_EQ(serve(steps), cuda::Answer::done);
  EXPECT_EQ(stats.disk_rejected, 1);
}

TEST_F(PlanChoice, WhatIsAddedToIsNotAddedToByMeasurements) {
  Steps steps{context(), {kSlow, kQuick}};
  steps.added_to = Tensor::zeros({4}, {DType::f32, test::device()});
  EXPECT_EQ(chosen(steps), kQuick);
  EXPECT_GT(steps.written.size(), 2u);
  void* const result = steps.added_to.raw_data();
  EXPECT_EQ(std::count(steps.written.begin(), steps.written.end(), result), 0);
  EXPECT_EQ(serve(steps), cuda::Answer::done);
  EXPECT_EQ(std::count(steps.written.begin(), steps.written.end(), result), 1);
}

TEST_F(PlanChoice, OptionsOutOfRangeAreRefused) {
  cuda::VendorOptions none;
  none.candidates = 0;
  EXPECT_THROW(context().vendor().set_options(none), ArgumentError);
}

TEST_F(PlanChoice, AsksOncePerSignature) {
  const Steps steps{context(), {kQuick}};
  choose(steps);
  const std::size_t runs = steps.runs;
  const std::int64_t waits = host_syncs();
  choose(steps);
  EXPECT_EQ(steps.runs, runs);
  EXPECT_EQ(host_syncs(), waits);
  EXPECT_EQ(stats.plans_made, 1);
}

TEST_F(PlanChoice, MeasuringIsNoCountedWait) {
  const std::int64_t waits = host_syncs();
  const ForbidSync forbid;
  choose({context(), {kSlow, kQuick}});
  EXPECT_EQ(host_syncs(), waits);
}

TEST_F(PlanChoice, DeterministicContextsTakeTheFirstGuess) {
  context().deterministic = true;
  const Steps steps{context(), {kSlow, kQuick}};
  EXPECT_EQ(chosen(steps), kSlow);
  EXPECT_EQ(steps.asked_for, 1u);
  EXPECT_EQ(steps.runs, 0u);
  EXPECT_FALSE(std::filesystem::exists(folder.path_of("signature")));
}

TEST_F(PlanChoice, WithoutAutotuneTakesTheFirstGuess) {
  options.autotune = false;
  const Steps steps{context(), {kSlow, kQuick}};
  EXPECT_EQ(chosen(steps), kSlow);
  EXPECT_EQ(steps.runs, 0u);
}

TEST_F(PlanChoice, MeasurementsOutliveTheProcess) {
  EXPECT_EQ(chosen({context(), {kSlow, kQuick}}), kQuick);
  EXPECT_EQ(stats.disk_misses, 1);
  cache.clear();
  const Steps next{context(), {kSlow}};
  EXPECT_EQ(chosen(next), kQuick);
  EXPECT_EQ(next.asked_for, 0u);
  EXPECT_EQ(stats.plans_loaded, 1);
  EXPECT_EQ(stats.plans_made, 1);
}

TEST_F(PlanChoice, AMissingPlanIsRememberedAcrossProcesses) {
  EXPECT_EQ(chosen({context(), {}}), 0u);
  cache.clear();
  const Steps next{context(), {kQuick}};
  EXPECT_EQ(chosen(next), 0u);
  EXPECT_EQ(next.asked_for, 0u);
}

TEST_F(PlanChoice, DamagedFilesAreCountedAndReplaced) {
  choose({context(), {kQuick}});
  {
    std::fstream file(folder.path_of("signature"), std::ios::in | std::ios::out);
    file.seekp(20);
    file.put('~');
  }
  cache.clear();
  EXPECT_EQ(chosen({context(), {kSlow}}), kSlow);
  EXPECT_EQ(stats.disk_rejected, 1);
  cache.clear();
  EXPECT_EQ(chosen({context(), {}}), kSlow);
  EXPECT_EQ(stats.plans_loaded, 1);
}

TEST_F(PlanChoice, PlansTheVendorNoLongerReadsAreMadeAgain) {
  ASSERT_TRUE(folder.save("signature", {"of another version", 1, 2}));
  EXPECT_EQ(chosen({context(), {kQuick}}), kQuick);
  EXPECT_EQ(stats.disk_rejected, 1);
}

TEST_F(PlanChoice, AFileOfAnotherDriverOrLibraryIsCountedAndReplaced) {
  choose({context(), {kSlow}});
  folder = PlanFolder(folder.path(), "GPU", "driver 2, cuDNN 9");
  cache.clear();
  EXPECT_EQ(chosen({context(), {kQuick}}), kQuick);
  EXPECT_EQ(stats.disk_outdated, 1);
  EXPECT_EQ(stats.disk_rejected, 0);
  EXPECT_EQ(stats.disk_misses, 1);  // the first
  cache.clear();
  EXPECT_EQ(chosen({context(), {}}), kQuick);
  EXPECT_EQ(stats.plans_loaded, 1);
  folder = PlanFolder(folder.path(), "another GPU", "driver 2, cuDNN 9");
  cache.clear();
  EXPECT_EQ(chosen({context(), {kSlow}}), kSlow);
  EXPECT_EQ(stats.disk_misses, 2);
  EXPECT_EQ(stats.disk_outdated, 1);
}

TEST_F(PlanChoice, WithoutAFolderNothingIsStored) {
  folder = PlanFolder({});
  EXPECT_EQ(chosen({context(), {kQuick}}), kQuick);
  EXPECT_EQ(stats.disk_misses, 0);
}

TEST_F(PlanChoice, InACaptureTheFirstGuessServesUntilItEnds) {
  const Stream stream = Stream::create(test::device());
  const StreamGuard guard(stream);
  const auto native = static_cast<cudaStream_t>(context().native_stream());
  const Steps steps{context(), {kSlow, kQuick}};
  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(chosen(steps), kSlow);
  EXPECT_EQ(chosen(steps), kSlow);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  EXPECT_EQ(steps.runs, 0u);
  EXPECT_EQ(stats.plans_made, 1);

  EXPECT_EQ(chosen(steps), kQuick);
  EXPECT_EQ(stats.tuned, 1);
}

}  // namespace athanor::plan_choice_test
