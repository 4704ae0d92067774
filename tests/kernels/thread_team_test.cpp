#include "kernels/cpu/thread_team.h"

#include <chrono>
#include <csignal>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/base/error.h"

namespace athanor::cpu::thread_team_test {

TEST(ThreadTeam, CallsEachPieceOnce) {
  ThreadTeam team;
  for (int round = 0; round < 2000; ++round) {
    const int pieces = round % 7;  // grows and shrinks
    std::vector<int> calls(7, 0);
    team.run(pieces, [&](int piece) { ++calls[piece]; });
    for (int piece = 0; piece < 7; ++piece) ASSERT_EQ(calls[piece], piece < pieces) << round;
  }
}

TEST(ThreadTeam, ResultsOfAPieceAreThereWhenRunReturns) {
  ThreadTeam team;
  std::vector<int> values(4, 0), next(4, 0);
  for (int round = 1; round <= 5000; ++round) {
    team.run(4, [&](int piece) { next[piece] = values[(piece + 1) % 4] + 1; });
    values.swap(next);
    for (const int value : values) ASSERT_EQ(value, round);
  }
}

TEST(ThreadTeam, WakesThreadsThatSleep) {
  ThreadTeam team;
  std::mutex mutex;
  for (int round = 0; round < 3; ++round) {
    std::set<std::thread::id> ids;
    std::atomic<int> arrived = 0;
    team.run(3, [&](int) {
      {
        const std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
      }
      ++arrived;
      while (arrived < 3) std::this_thread::yield();  // no thread can take two
    });
    EXPECT_EQ(ids.size(), 3u);
    EXPECT_TRUE(ids.contains(std::this_thread::get_id()));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

TEST(ThreadTeam, ThreadsComeBackFromARest) {
  ThreadTeam team;
  for (int round = 0; round < 300; ++round) {
    if (round % 3 != 0) team.rest();
    if (round % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round % 50));
    std::atomic<int> arrived = 0;
    team.run(3, [&](int) {
      ++arrived;
      while (arrived < 3) std::this_thread::yield();  // no thread can take two
    });
    ASSERT_EQ(arrived, 3);
  }
}

#if !defined(__SANITIZE_THREAD__)  // which delivers signals late, and does not like a fork
std::atomic<bool> held, holding;
void hold(int) {
  holding = true;
  while (held) {
  }
}

TEST(ThreadTeam, TakesThePiecesOfAThreadThatDoesNotCome) {
  ThreadTeam team;
  pthread_t other{};
  std::atomic<int> arrived = 0;
  const pthread_t mine = pthread_self();
  team.run(2, [&](int) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();  // so that no thread takes both
    if (!pthread_equal(pthread_self(), mine)) other = pthread_self();
  });
  struct sigaction before, action = {};
  action.sa_handler = hold;
  sigaction(SIGUSR2, &action, &before);
  held = true, holding = false;
  pthread_kill(other, SIGUSR2);
  while (!holding) std::this_thread::yield();
  std::vector<int> calls(2, 0);
  team.run(2, [&](int piece) { ++calls[piece]; });  // would not return if it waited for the thread
  held = false;
  EXPECT_EQ(calls, (std::vector<int>{1, 1}));
  sigaction(SIGUSR2, &before, nullptr);
}

TEST(ThreadTeam, AForkHasNoThreadsAndNeedsNone) {
  auto team = std::make_unique<ThreadTeam>();
  std::atomic<int> calls = 0;
  team->run(3, [&](int) { ++calls; });
  const pid_t child = fork();
  if (child == 0) {
    team->run(3, [&](int) { ++calls; });
    team.reset();
    _exit(calls == 6 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(calls, 3);
}

TEST(ThreadTeam, WithoutThreadsTheCallerDoesAll) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {0, 0};
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(2);  // root has no limit
    if (setrlimit(RLIMIT_NPROC, &none) != 0) _exit(2);
    ThreadTeam team;
    int calls = 0;
    for (int round = 0; round < 2; ++round) team.run(3, [&](int) { ++calls; });
    _exit(calls == 6 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

TEST(ThreadTeam, ALoopWithinAPieceRunsInOrderOnItsThread) {
  ThreadTeam team, other;
  std::vector<std::vector<int>> orders(4);
  team.run(4, [&](int piece) {
    const std::thread::id mine = std::this_thread::get_id();
    for (ThreadTeam* const inner : {&team, &other})
      inner->run(3, [&](int one) { orders[piece].push_back(std::this_thread::get_id() == mine ? one : -1); });
  });
  for (const std::vector<int>& order : orders) EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 0, 1, 2}));
}

TEST(ThreadTeam, MorePiecesThanItTakesAreRefused) {
  ThreadTeam team;
  EXPECT_THROW(team.run(ThreadTeam::kMaxPieces + 1, [](int) {}), ArgumentError);
}

}  // namespace athanor::cpu::thread_team_test
