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
  dist::StallTimeout::Clock::time_point now{};
  dist::StallTimeout patience(1s, now);
  const auto wait = [&](std::chrono::milliseconds since_the_last) {
    return patience.wait(1, now += since_the_last);
  };
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(wait(5ms)) << i;
  EXPECT_TRUE(wait(1h));
  EXPECT_TRUE(wait(499ms));
  EXPECT_FALSE(wait(10ms)) << "half a second before it was stopped, and half a second since";
}

// Ending ---------------------------------------------------------------------------------------------------

/// A machine that gives this process no turn for seconds has not stopped it, and lets it say its last words.
dist::WatchdogOptions on_a_busy_machine(const std::filesystem::path& folder,
                                        std::chrono::milliseconds agreement = 0ms) {
  return {.folder = folder, .agreement = agreement, .limit = 60s, .stopped = 1h};
}

/// Until the signal that has come is agreed on.
void wait_for_agreement() {
  for (int i = 0; i < 60'000 && Watchdog::signal() != 0; ++i) std::this_thread::sleep_for(1ms);
  if (Watchdog::signal() != 0) _exit(1);
}

TEST_F(WatchdogDeathTest, ALostRankEndsTheProcess) {
  const auto lose = [&] {
    ThreadJob job(3);
    job.stop(1);
    Communicator comm(job.transport(0), {.timeout = 400ms});
    const Watchdog watchdog(job.transport(0), on_a_busy_machine(folder));
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
    const Watchdog watchdog(job.transport(0), on_a_busy_machine(folder, 10s));
    const dist::PassNetwork passes(comm);
    (void)dist::all_gather(Tensor::zeros({2, 2}), passes);
  };
  EXPECT_EXIT(lose(), testing::ExitedWithCode(74), "^rank 0: error: .*rank 1.*rank_order all_gather #0");
}

TEST_F(WatchdogDeathTest, ASignalEndsIt) {
  const auto end = [&](std::chrono::milliseconds agreement) {
    ThreadJob job(2);
    Watchdog watchdog(job.transport(0), on_a_busy_machine(folder, agreement));
    const SignalGuard guard;  // both see it
    watchdog.agreed(false);
    raise(SIGTERM);
    if (guard.caught() != SIGTERM) _exit(1);
    for (;;) std::this_thread::sleep_for(1s);
  };
  EXPECT_EXIT(end(0ms), testing::ExitedWithCode(74), "^rank 0: error: .*SIGTERM.*rank 0");
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EXIT(end(1s), testing::ExitedWithCode(74), "^rank 0: error: .*SIGTERM.*rank 0");
  EXPECT_GE(std::chrono::steady_clock::now() - began, 1s) << "ranks have that long to agree";
}

// While ranks prepare, nothing is lost.
TEST_F(WatchdogDeathTest, ASignalBeforeTheFirstAgreementEndsItQuietly) {
  const auto end = [&] {
    ThreadJob job(2);
    const Watchdog watchdog(job.transport(0), on_a_busy_machine(folder, 300ms));
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
    Watchdog watchdog(job.transport(0), on_a_busy_machine(folder, 120s));
    const auto is_written = [&] { return std::filesystem::exists(record()); };
    raise(SIGTERM);
    for (int i = 0; i < 6'000 && !is_written(); ++i) std::this_thread::sleep_for(10ms);
    const bool early = is_written();  // for who is not given the time
    watchdog.agreed(false);
    watchdog.agreed(true);
    wait_for_agreement();
    std::fprintf(stderr, "agreed");
    _exit(early && !is_written() ? 5 : 1);
  };
  EXPECT_EXIT(agree(), testing::ExitedWithCode(5), "agreed");
}

// Of several ranks one is the first to be told.
TEST_F(WatchdogDeathTest, TheErrorMayComeBeforeTheSignal) {
  const auto agree = [&] {
    ThreadJob job(2);
    Watchdog watchdog(job.transport(0), on_a_busy_machine(folder, 100ms));
    watchdog.agreed(true);
    raise(SIGTERM);
    wait_for_agreement();
    std::this_thread::sleep_for(600ms);  // no late end follows
    _exit(std::filesystem::exists(record()) ? 1 : 5);
  };
  EXPECT_EXIT(agree(), testing::ExitedWithCode(5), "^$");
}

// Half a second is not enough where a step takes longer.
TEST_F(WatchdogDeathTest, TheCurrentStepMayFinish) {
  const auto agree = [&] {
    ThreadJob job(2);
    Watchdog watchdog(job.transport(0), on_a_busy_machine(folder, 100ms));
    watchdog.agreed(false);
    std::this_thread::sleep_for(4s);  // three times as long is the limit
    watchdog.agreed(false);
    raise(SIGTERM);
    std::this_thread::sleep_for(500ms);
    watchdog.agreed(true);
    wait_for_agreement();
    _exit(5);
  };
  EXPECT_EXIT(agree(), testing::ExitedWithCode(5), "^$");
}

// A checkpoint that is being saved is waited for.
TEST_F(WatchdogDeathTest, LongWorkMayFinish) {
  const auto agree = [&](bool says_so, bool done, std::chrono::milliseconds takes) {
    ThreadJob job(2);
    Watchdog watchdog(job.transport(0), on_a_busy_machine(folder, 100ms));
    watchdog.agreed(false);
    if (says_so) watchdog.set_slow_rank();
    if (done) watchdog.set_slow_rank(-1);
    raise(SIGTERM);
    std::this_thread::sleep_for(takes);
    watchdog.agreed(true);
    wait_for_agreement();
    std::this_thread::sleep_for(300ms);
    _exit(5);
  };
  EXPECT_EXIT(agree(true, false, 1s), testing::ExitedWithCode(5), "^$");
  EXPECT_EXIT(agree(false, false, 60s), testing::ExitedWithCode(74), "^rank 0: error: .*SIGTERM");
  EXPECT_EXIT(agree(true, true, 60s), testing::ExitedWithCode(74), "^rank 0: error: .*SIGTERM");
}

// But not where something else than the save keeps the ranks from it.
TEST_F(WatchdogDeathTest, DoesNotWaitForARankLostDuringASave) {
  const auto end = [&](int waits_for, std::chrono::milliseconds takes) {
    ThreadJob job(3);
    Watchdog watchdog(job.transport(0), on_a_busy_machine(folder, 300ms));
    watchdog.agreed(false);
    watchdog.set_slow_rank(0);
    job.transport(0).session().begin({"barrier"});
    job.transport(0).session().flight().waits_for(waits_for);
    raise(SIGTERM);
    std::this_thread::sleep_for(takes);
    watchdog.agreed(true);
    wait_for_agreement();
    _exit(5);
  };
  EXPECT_EXIT(end(2, 60s), testing::ExitedWithCode(74), "^rank 0: error: .*SIGTERM");
  EXPECT_EXIT(end(0, 1500ms), testing::ExitedWithCode(5), "^$");
}

// Who has waited for as long as an agreement takes, for one that is lost, does not wait again; who waits for
// the one that saves does.
TEST_F(WatchdogDeathTest, AStalledRankTriesNoAgreement) {
  const auto end = [&](int waits_for, int slow, std::chrono::milliseconds agreement) {
    ThreadJob job(3);
    Watchdog watchdog(job.transport(0), on_a_busy_machine(folder, agreement));
    watchdog.agreed(false);
    if (slow >= 0) watchdog.set_slow_rank(slow);
    job.transport(0).session().begin({"barrier"});
    job.transport(0).session().flight().waits_for(waits_for);
    std::this_thread::sleep_for(agreement + 300ms);
    raise(SIGTERM);
    std::this_thread::sleep_for(agreement - 500ms);  // another agreement could come about
    watchdog.agreed(true);
    wait_for_agreement();
    _exit(5);
  };
  for (const int slow : {-1, 1}) {
    EXPECT_EXIT(end(2, slow, 5s), testing::ExitedWithCode(74),
                "^rank 0: error: .*SIGTERM.*rank 2.*barrier #0")
        << slow;
  }
  EXPECT_EXIT(end(1, 1, 1s), testing::ExitedWithCode(5), "^$");
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
