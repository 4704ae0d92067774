// How a rank ends for what others do: by a deadline, a signal, or a call that they do not make.
#include "dist/watch/watchdog.h"

#include <csignal>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <sys/time.h>
#include <unistd.h>

#include "dist/all_gather.h"
#include "dist/collectives/communicator.h"
#include "dist/collectives/wait.h"
#include "dist/transports/thread_transport.h"
#include "dist/watch/rank_record.h"
#include "tests/support/compare_calls_cases.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/watchdog_death.h"
#include "trainer/signals.h"

namespace athanor::watchdog_test {

using namespace std::chrono_literals;
using dist::Communicator;
using dist::RankRecord;
using dist::run_ranks;
using dist::ThreadJob;
using dist::Transport;
using dist::Watchdog;
using test::TempDir;
using test::WatchdogDeathTest;

// Comparing ------------------------------------------------------------------------------------------------

TEST(CompareCalls, AllMismatchedRanksReportIt) {
  for (const test::OtherCall& call : test::other_calls())
    run_ranks(3, [&](Transport& transport) { test::check_other_call(transport, call); });
}

TEST(CompareCalls, AMissingStepIsFoundByTheAdvancingThread) {
  for (const auto overlap : {dist::Overlap::none, dist::Overlap::pumped, dist::Overlap::thread})
    run_ranks(2, [&](Transport& transport) { test::check_missing_step(transport, overlap); });
}

TEST(CompareCalls, ChangesNothingWhereRanksAgree) {
  for (const int world : {1, 2, 4}) run_ranks(world, test::check_comparing_changes_nothing);
}

// Waiting --------------------------------------------------------------------------------------------------

TEST(StallTimeout, IsNotLostWhileTheProcessItselfWasStopped) {
  dist::StallTimeout patience(1s);
  const auto taken_by = [](const auto& f) {
    const auto began = std::chrono::steady_clock::now();
    f();
    return std::chrono::steady_clock::now() - began;
  };
  const auto before = taken_by([&] {
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(patience.wait(1));
  });
  std::this_thread::sleep_for(1500ms);
  EXPECT_TRUE(patience.wait(1));
  const auto after = taken_by([&] {
    while (patience.wait(1)) {
    }
  });
  EXPECT_GE(before + after, 950ms);
}

// Ending ---------------------------------------------------------------------------------------------------

TEST_F(WatchdogDeathTest, ALostRankEndsTheProcess) {
  const auto lose = [&] {
    ThreadJob job(3);
    job.stop(1);
    Communicator comm(job.transport(0), {.timeout = 400ms});
    const Watchdog watchdog(job.transport(0), {.folder = folder});
    comm.run(*comm.all_reduce(Tensor::zeros({64})), 5);
  };
  EXPECT_EXIT(lose(), testing::ExitedWithCode(74),
              "^rank 0: error: [^\n]*rank [12][^\n]*rank_order all_reduce #0[^\n]*bucket 5[^\n]*flight.0.json"
              "[^\n]*\n$");
  const RankRecord written = dist::read_record(record(), 0);
  EXPECT_EQ(written.damage, "");
  EXPECT_EQ(written.reason, "deadline");
  EXPECT_TRUE(test::names(written.error, {"rank_order all_reduce #0", "bucket 5"}));
  ASSERT_EQ(written.entries.size(), 1u);
  EXPECT_TRUE(written.entries[0].under_way());
}

// A pass waits on a network of its own.
TEST_F(WatchdogDeathTest, NamesTheRankMissingInAPass) {
  const auto lose = [&] {
    ThreadJob job(2);
    std::unique_ptr<Transport> other = job.transport(1).duplicate();
    Communicator comm(job.transport(0), {.timeout = 400ms});
    const Watchdog watchdog(job.transport(0), {.folder = folder, .agreement = 10s});
    const dist::PassNetwork passes(comm);
    (void)dist::all_gather(Tensor::zeros({2, 2}), passes);
  };
  EXPECT_EXIT(lose(), testing::ExitedWithCode(74), "^rank 0: error: .*rank 1.*rank_order all_gather #0");
}

TEST_F(WatchdogDeathTest, ASignalEndsIt) {
  const auto end = [&](std::chrono::milliseconds agreement) {
    ThreadJob job(2);
    Watchdog watchdog(job.transport(0), {.folder = folder, .agreement = agreement});
    const SignalGuard guard;  // both see it
    watchdog.agreed(false);
    raise(SIGTERM);
    if (guard.caught() != SIGTERM) _exit(1);
    if (agreement > 0ms) {
      std::this_thread::sleep_for(agreement / 3);
      std::fprintf(stderr, "still here; ");
    }
    for (;;) std::this_thread::sleep_for(1s);
  };
  EXPECT_EXIT(end(0ms), testing::ExitedWithCode(74), "^rank 0: error: .*SIGTERM.*rank 0");
  EXPECT_EXIT(end(3s), testing::ExitedWithCode(74), "^still here; rank 0: error: .*SIGTERM.*rank 0");
}

// While ranks prepare, nothing is lost.
TEST_F(WatchdogDeathTest, ASignalBeforeTheFirstAgreementEndsItQuietly) {
  const auto end = [&] {
    ThreadJob job(2);
    const Watchdog watchdog(job.transport(0), {.folder = folder, .agreement = 300ms});
    raise(SIGINT);
    const SignalGuard guard;
    if (guard.caught() != SIGINT) _exit(1);
    for (;;) std::this_thread::sleep_for(1s);
  };
  EXPECT_EXIT(end(), testing::KilledBySignal(SIGINT), "^$");
  EXPECT_FALSE(std::filesystem::exists(record()));
}

TEST_F(WatchdogDeathTest, MatchingRanksAreLeftAlone) {
  const auto agree = [&] {
    ThreadJob job(2);
    Watchdog watchdog(job.transport(0), {.folder = folder, .agreement = 5s});
    const auto becomes = [&](bool written) {
      for (int i = 0; i < 400 && std::filesystem::exists(record()) != written; ++i)
        std::this_thread::sleep_for(10ms);
      return std::filesystem::exists(record()) == written;
    };
    raise(SIGTERM);
    const bool early = becomes(true);  // for who is not given the time
    watchdog.agreed(false);
    watchdog.agreed(true);
    const bool gone = becomes(false);
    std::this_thread::sleep_for(6s);
    std::fprintf(stderr, "agreed");
    _exit(early && gone ? 5 : 1);
  };
  EXPECT_EXIT(agree(), testing::ExitedWithCode(5), "agreed");
}

// Of several ranks one is the first to be told.
TEST_F(WatchdogDeathTest, TheErrorMayComeBeforeTheSignal) {
  const auto agree = [&] {
    ThreadJob job(2);
    Watchdog watchdog(job.transport(0), {.folder = folder, .agreement = 100ms});
    watchdog.agreed(true);
    raise(SIGTERM);
    std::this_thread::sleep_for(600ms);
    _exit(std::filesystem::exists(record()) ? 1 : 5);
  };
  EXPECT_EXIT(agree(), testing::ExitedWithCode(5), "^$");
}

// Half a second is not enough where a step takes longer.
TEST_F(WatchdogDeathTest, TheCurrentStepMayFinish) {
  const auto agree = [&] {
    ThreadJob job(2);
    Watchdog watchdog(job.transport(0), {.folder = folder, .agreement = 100ms});
    watchdog.agreed(false);
    std::this_thread::sleep_for(600ms);
    watchdog.agreed(false);
    raise(SIGTERM);
    std::this_thread::sleep_for(500ms);
    watchdog.agreed(true);
    std::this_thread::sleep_for(1500ms);
    _exit(5);
  };
  EXPECT_EXIT(agree(), testing::ExitedWithCode(5), "^$");
}

// A checkpoint that is being saved is waited for.
TEST_F(WatchdogDeathTest, LongWorkMayFinish) {
  const auto agree = [&](bool says_so, bool done = false) {
    ThreadJob job(2);
    Watchdog watchdog(job.transport(0), {.folder = folder, .agreement = 100ms});
    watchdog.agreed(false);
    if (says_so) watchdog.set_slow_rank();
    if (done) watchdog.set_slow_rank(-1);
    raise(SIGTERM);
    std::this_thread::sleep_for(1s);
    watchdog.agreed(true);
    std::this_thread::sleep_for(300ms);
    _exit(5);
  };
  EXPECT_EXIT(agree(true), testing::ExitedWithCode(5), "^$");
  EXPECT_EXIT(agree(false), testing::ExitedWithCode(74), "^rank 0: error: .*SIGTERM");
  EXPECT_EXIT(agree(true, true), testing::ExitedWithCode(74), "^rank 0: error: .*SIGTERM");
}

// But not where something else than the save keeps the ranks from it.
TEST_F(WatchdogDeathTest, DoesNotWaitForARankLostDuringASave) {
  const auto end = [&](int waits_for) {
    ThreadJob job(3);
    Watchdog watchdog(job.transport(0), {.folder = folder, .agreement = 300ms});
    watchdog.agreed(false);
    watchdog.set_slow_rank(0);
    job.transport(0).session().begin({"barrier"});
    job.transport(0).session().flight().waits_for(waits_for);
    raise(SIGTERM);
    std::this_thread::sleep_for(1500ms);
    watchdog.agreed(true);
    std::this_thread::sleep_for(300ms);
    _exit(5);
  };
  EXPECT_EXIT(end(2), testing::ExitedWithCode(74), "^rank 0: error: .*SIGTERM");
  EXPECT_EXIT(end(0), testing::ExitedWithCode(5), "^$");
}

// Who has waited for as long as an agreement takes, for one that is lost, does not wait again; who waits for
// the one that saves does.
TEST_F(WatchdogDeathTest, AStalledRankTriesNoAgreement) {
  const auto end = [&](int waits_for, int slow) {
    ThreadJob job(3);
    Watchdog watchdog(job.transport(0), {.folder = folder, .agreement = 1s});
    watchdog.agreed(false);
    if (slow >= 0) watchdog.set_slow_rank(slow);
    job.transport(0).session().begin({"barrier"});
    job.transport(0).session().flight().waits_for(waits_for);
    std::this_thread::sleep_for(1300ms);
    raise(SIGTERM);
    std::this_thread::sleep_for(500ms);
    watchdog.agreed(true);
    std::this_thread::sleep_for(500ms);
    _exit(5);
  };
  for (const int slow : {-1, 1}) {
    EXPECT_EXIT(end(2, slow), testing::ExitedWithCode(74), "^rank 0: error: .*SIGTERM.*rank 2.*barrier #0")
        << slow;
  }
  EXPECT_EXIT(end(1, 1), testing::ExitedWithCode(5), "^$");
}

// What a run has left that was lost is there until the next one goes well.
TEST(Watchdog, AWrongFlagLeavesTheRecordOfTheRunBefore) {
  const TempDir folder;
  const std::filesystem::path path = folder.path() / "flight.0.json";
  const auto text = [&] {
    std::string line;
    std::getline(std::ifstream(path), line);
    return line;
  };
  ThreadJob job(2);
  std::ofstream(path) << "of an earlier run";
  Watchdog watchdog(job.transport(0), {.folder = folder.path(), .agreement = 1s, .limit = 60s});
  job.transport(0).session().begin({"barrier"});
  EXPECT_EQ(text(), "of an earlier run");
  watchdog.report_own_failure(2, "a flag is wrong", false);
  EXPECT_EQ(text(), "of an earlier run");
  watchdog.agreed(false);
  EXPECT_FALSE(std::filesystem::exists(path));
  watchdog.report_own_failure(2, "a setting is wrong", false);
  EXPECT_EQ(dist::read_record(path, 0).error, "a setting is wrong");
  constexpr itimerval kNever{};
  setitimer(ITIMER_REAL, &kNever, nullptr);
}

TEST(Watchdog, LeavesNothingBehind) {
  const TempDir folder;
  const std::filesystem::path path = folder.path() / "flight.0.json";
  std::ofstream(path) << "of an earlier run";
  ThreadJob job(2), alone(1);
  struct sigaction before {
  }, after{};
  sigaction(SIGTERM, nullptr, &before);
  {
    const Watchdog watchdog(job.transport(0), {.folder = folder.path()});
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_THROW(Watchdog(job.transport(1), {.folder = folder.path()}), ArgumentError);
    (void)Watchdog(alone.transport(0));
  }
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THROW(Watchdog(job.transport(0), {.folder = folder.path() / "absent"}), IoError);
  const Watchdog again(job.transport(0), {.folder = folder.path()});
}

}  // namespace athanor::watchdog_test
