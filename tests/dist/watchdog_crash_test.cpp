// How a rank ends by itself: by a crash, a stack that is full, or an error of its own.
#include <array>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "dist/bucket_runner.h"
#include "dist/collectives/communicator.h"
#include "dist/transports/thread_transport.h"
#include "dist/watch/rank_record.h"
#include "dist/watch/watchdog.h"
#include "tests/support/overflow.h"
#include "tests/support/watchdog_death.h"

namespace athanor::watchdog_crash_test {

using namespace std::chrono_literals;
using dist::Communicator;
using dist::RankRecord;
using dist::ThreadJob;
using dist::Watchdog;
using test::WatchdogDeathTest;

TEST_F(WatchdogDeathTest, ACrashLeavesARecord) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer handles crashes in its own way";
#endif
  const auto crash = [&] {
    ThreadJob job(2);
    const Watchdog watchdog(job.transport(0), {.folder = folder});
    raise(SIGSEGV);
  };
  EXPECT_EXIT(crash(), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EQ(dist::read_record(record(), 0).reason, "SIGSEGV");
}

/// Whoever pushes it needs more stack than there is.
class Overflowing final : public dist::Collective {
 public:
  void start(dist::Tag) override {}
  bool advance() override {
    test::overflow_the_stack();
    return true;
  }
  std::int64_t progress() const override { return 0; }
  int waits_for() const override { return -1; }
  dist::Call call() const override { return {"overflowing"}; }
};

// Where the thread has no room for a handler any more: the one that made the Watchdog, or that of the
// buckets.
class OverflowDeathTest : public WatchdogDeathTest {
 protected:
  void check(dist::Overlap overlap) const {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer handles crashes in its own way";
#endif
    const auto overflow = [&] {
      ThreadJob job(2);
      const Watchdog watchdog(job.transport(0), {.folder = folder});
      Communicator comm(job.transport(0));
      std::vector<std::unique_ptr<dist::Collective>> one;
      one.push_back(std::make_unique<Overflowing>());
      dist::BucketRunner runner(comm, overlap, std::move(one));
      runner.launch();
      runner.finish();
    };
    EXPECT_EXIT(overflow(), testing::KilledBySignal(SIGSEGV), "");
    const RankRecord written = dist::read_record(record(), 0);
    EXPECT_EQ(written.damage, "");
    EXPECT_EQ(written.reason, "SIGSEGV");
    ASSERT_EQ(written.entries.size(), 1u);
    EXPECT_EQ(written.entries[0].name, "overflowing");
    EXPECT_EQ(written.entries[0].bucket, 0);
    EXPECT_TRUE(written.entries[0].under_way());
  }
};

TEST_F(OverflowDeathTest, LeavesARecord) {
  check(dist::Overlap::none);
}
TEST_F(OverflowDeathTest, LeavesOneWithAnAdvancingThread) {
  check(dist::Overlap::thread);
}

TEST_F(WatchdogDeathTest, ShutdownHasATimeLimit) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer keeps a signal back until the call in which it came returns";
#endif
  const auto hang = [&] {
    ThreadJob job(2);
    Watchdog watchdog(job.transport(0), {.folder = folder, .limit = 300ms});
    // Whoever writes to a pipe that is full waits for a reader.
    std::array<int, 2> full{};
    if (pipe2(full.data(), O_NONBLOCK) != 0) _exit(1);
    while (write(full[1], "full", 4) > 0) {
    }
    fcntl(full[1], F_SETFL, 0);
    dup2(full[1], STDERR_FILENO);
    watchdog.end(3, "is not said any more");
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(74), "^$");
}

TEST_F(WatchdogDeathTest, AnOwnErrorIsReportedInOneLine) {
  const auto end = [&] {
    ThreadJob job(2);
    Watchdog watchdog(job.transport(0), {.folder = {}, .limit = 60s});
    watchdog.end(3, "one\ntwo");
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(3), "^rank 0: error: one two\n$");
}

TEST_F(WatchdogDeathTest, ARankThatReportedEndsSilently) {
  const auto end = [&](int signal) {
    ThreadJob job(2);
    Watchdog watchdog(job.transport(0),
                      {.folder = folder, .agreement = 300ms, .limit = signal == 0 ? 5s : 60s});
    std::filesystem::remove(record());
    watchdog.report_own_failure(3, "it has done nothing");
    if (std::filesystem::exists(record())) _exit(1);
    job.transport(0).session().begin({"barrier"});
    watchdog.report_own_failure(3, "a file is missing");
    if (signal != 0) raise(signal);
    std::this_thread::sleep_for(120s);
  };
  EXPECT_EXIT(end(SIGTERM), testing::ExitedWithCode(3), "^$");
  EXPECT_EXIT(end(0), testing::ExitedWithCode(74), "^$");
  EXPECT_EQ(dist::read_record(record(), 0).error, "a file is missing");
}

}  // namespace athanor::watchdog_crash_test
