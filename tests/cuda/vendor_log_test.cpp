// Plans that are refused, and the time that tuning takes: what is counted, and what the user is told.
#include <chrono>
#include <thread>

#include <cuda_runtime.h>

#include "tests/cuda/plan_choice.h"
#include "tests/support/errors.h"

namespace athanor::vendor_log_test {

using namespace test;

class PlanLog : public PlanChoiceTest {
 protected:
  /// However slowly this runs, there will be no line about tuning.
  void say_nothing_of_tuning() { log.stats.tuning_s = -1e9; }
};

TEST_F(PlanLog, AChosenPlanThatIsRefusedLaterIsAnErrorThatNamesTheSignature) {
  cache.insert({0}, {Plan{kBroken}});
  const std::string error = message_of<BackendError>([&] { (void)serve({context(), {kQuick}}); });
  EXPECT_TRUE(names(error, {"signature", "does not run", "driver 1, cuDNN 9"}));
  EXPECT_EQ(lines(), std::vector{error});
  EXPECT_EQ(stats.refused, 1);
  EXPECT_EQ(stats.calls, 0);
}

TEST_F(PlanLog, ARefusedPlanIsCountedAndToldOncePerSignature) {
  say_nothing_of_tuning();
  const Steps steps{context(), {kBroken, kQuick, kBroken}};
  EXPECT_EQ(chosen(steps), kQuick);
  const std::vector<std::string> told = lines();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(names(told[0], {"signature", "2 of 3 plans", "does not run", "driver 1, cuDNN 9"}));
  EXPECT_EQ(stats.refused, 1);
  EXPECT_EQ(stats.fallbacks, 0);
  cache.clear();
  std::filesystem::remove(folder.path_of("signature"));
  EXPECT_EQ(chosen(steps), kQuick);
  EXPECT_EQ(chosen({context(), {kQuick, kSlow}, kSlow, kSlow, "sound"}, 1),
            kQuick);  // not accepted: no refusal
  EXPECT_EQ(lines(), std::vector<std::string>());
  EXPECT_EQ(stats.refused, 1);
}

TEST_F(PlanLog, OurOwnKernelInTheVendorsPlaceIsNoSecret) {
  say_nothing_of_tuning();
  const auto told_of = [&](const Steps& steps, int signature) {
    EXPECT_FALSE(choose(steps, signature).plan);
    const std::vector<std::string> told = lines();
    return told.size() == 1 ? told[0] : fmt::format("{} lines", told.size());
  };
  EXPECT_TRUE(names(told_of({context(), {kBroken}, kSlow, 0, "broken"}, 1),
                    {"broken", "1 of 1 plans", "does not run", "driver 1, cuDNN 9"}));
  EXPECT_EQ(stats.refused, 1);
  EXPECT_EQ(stats.fallbacks, 1);
  EXPECT_TRUE(names(told_of({context(), {kUntestable, kUntestable}, kSlow, 0, "huge"}, 2),
                    {"huge", "2 plans", "no room for its workspace", "driver 1, cuDNN 9"}));
  EXPECT_EQ(stats.refused, 1);
  EXPECT_EQ(stats.fallbacks, 2);
  Steps unmade{context(), {}, kSlow, 0, "unmade"};
  unmade.certain = false;
  EXPECT_TRUE(names(told_of(unmade, 3), {"unmade", "driver 1, cuDNN 9"}));
  EXPECT_EQ(stats.refused, 2);
  EXPECT_EQ(stats.fallbacks, 3);
  Steps fused{context(), {kBroken}, kSlow, 0, "fused"};
  fused.ours_next = false;
  EXPECT_TRUE(names(told_of(fused, 5), {"fused", "1 of 1 plans", "driver 1, cuDNN 9"}));
  EXPECT_EQ(stats.refused, 3);
  EXPECT_EQ(stats.fallbacks, 3);
  EXPECT_EQ(told_of({context(), {}, kSlow, 0, "unsupported"}, 4),
            "0 lines");  // the vendor has none, and says so
  EXPECT_EQ(stats.fallbacks, 3);
}

// A plan from a file is refused, and so are all others: one signature, one refusal, and one fallback.
TEST_F(PlanLog, ARefusedFileAndRefusedPlansCountAsOneSignature) {
  say_nothing_of_tuning();
  ASSERT_TRUE(folder.save("signature", {std::to_string(kBroken), 1, 2}));
  EXPECT_EQ(serve({context(), {kBroken}}), cuda::Answer::no_plan);
  EXPECT_EQ(stats.refused, 1);
  EXPECT_EQ(stats.fallbacks, 1);
  EXPECT_EQ(lines().size(), 2u);
}

// The time of tuning ---------------------------------------------------------------------------------------

TEST_F(PlanLog, TimeSpentOnMeasuringIsCounted) {
  choose({context(), {kSlow, kQuick}});
  const double tuned_s = stats.tuning_s;
  EXPECT_GT(tuned_s, 0);
  choose({context(), {kSlow, kQuick}});  // known
  EXPECT_EQ(stats.tuning_s, tuned_s);
}

TEST_F(PlanLog, TimeSpentOnMeasuringWithinAMeasurementCountsOnce) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  {
    const cuda::TuningTime of_both(context(), log, folder.path(), false);
    const cuda::TuningTime of_a_part(context(), log, folder.path(), false);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_GE(stats.tuning_s, 0.02);
  EXPECT_LE(stats.tuning_s, std::chrono::duration<double>(Clock::now() - began).count());
}

// Before it measures, tuning waits for the device: what was queued is the step's time.
TEST_F(PlanLog, WorkThatWasQueuedBeforeIsNoTuning) {
  if (test::kChecksEveryAccess) GTEST_SKIP() << "measuring takes as long here";
  constexpr std::chrono::milliseconds kWork{4000};
  const auto native = static_cast<cudaStream_t>(context().native_stream());
  const auto sleep = [](void* ms) {
    std::this_thread::sleep_for(*static_cast<std::chrono::milliseconds*>(ms));
  };
  std::chrono::milliseconds work = kWork;
  ASSERT_EQ(cudaLaunchHostFunc(native, sleep, &work), cudaSuccess);
  choose({context(), {kQuick}, kQuick});
  EXPECT_LT(stats.tuning_s, 3.5);
}

TEST_F(PlanLog, TuningThatTakesOverASecondIsToldOnceWhileItHappens) {
  say_nothing_of_tuning();
  choose({context(), {kQuick}});
  EXPECT_EQ(lines(), std::vector<std::string>());
  log.stats.tuning_s = cuda::VendorLog::kWorthALine_s;
  std::vector<std::string> told;
  bool ran = true;
  Steps steps{context(), {kQuick, kQuick}, kSlow, 0, "another"};
  log.exchange([&](const std::string& line) {
    told.push_back(line);
    ran = steps.runs > 0;
  });
  choose(steps, 1);
  choose({context(), {kQuick}, kSlow, 0, "a third"}, 2);
  log.exchange({});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(names(told[0], {folder.path().string()}));
  EXPECT_FALSE(ran) << "told after the fact";
}

TEST_F(PlanLog, LinesWaitForWhoeverListensNext) {
  cuda::Vendor& vendor = context().vendor();
  vendor.log().say("before");
  std::vector<std::string> outer, inner;
  {
    const VendorNotes notes(test::device(), [&](const std::string& line) { outer.push_back(line); });
    vendor.log().say("1");
    {
      const VendorNotes nested(test::device(), [&](const std::string& line) { inner.push_back(line); });
      vendor.log().say("2");
    }
    vendor.log().say("3");
  }
  EXPECT_EQ(outer, (std::vector<std::string>{"before", "1", "3"}));
  EXPECT_EQ(inner, std::vector<std::string>{"2"});
  EXPECT_EQ(&vendor_stats(test::device()), &vendor.stats());
}

}  // namespace athanor::vendor_log_test
