// What a run does with signals.
#include "trainer/signals.h"

#include <csignal>
#include <memory>

#include <gtest/gtest.h>
#include <unistd.h>

namespace athanor::signals_test {

// As those of ranks that are threads: whoever goes last puts back what was there first.
TEST(Signals, AreAsTheyWereWhenTheLastGuardGoes) {
  const auto handler = [] {
    struct sigaction now {};
    sigaction(SIGTERM, nullptr, &now);
    return now.sa_handler;
  };
  const auto before = handler();
  auto first = std::make_unique<SignalGuard>(), second = std::make_unique<SignalGuard>();
  first.reset();
  std::raise(SIGTERM);
  EXPECT_EQ(second->caught(), SIGTERM);
  second.reset();
  EXPECT_EQ(handler(), before);
}

/// What a process does that a signal meets before, within and after training.
void be_ended(int signal, bool trains) {
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) std::signal(one, SIG_DFL);
  say_what_ended();
  if (trains) {
    const SignalGuard guard;
    std::raise(signal);
    if (guard.caught() != signal) ::_exit(1);
  }
  std::raise(signal);
  ::_exit(2);
}

TEST(SignalsDeathTest, BeforeTrainingEndTheProcessWithALine) {
  EXPECT_EXIT(be_ended(SIGINT, false), testing::ExitedWithCode(130),
              "^ended by SIGINT before the first step; nothing was saved\n$");
  EXPECT_EXIT(be_ended(SIGTERM, false), testing::ExitedWithCode(143), "^ended by SIGTERM before");
  EXPECT_EXIT(be_ended(SIGHUP, true), testing::ExitedWithCode(129), "^ended by SIGHUP\n$") << "afterwards";
}

TEST(Signals, ThatAreIgnoredStayIgnored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  say_what_ended();
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN);
  for (const int one : {SIGINT, SIGTERM}) std::signal(one, SIG_DFL);
}

}  // namespace athanor::signals_test
