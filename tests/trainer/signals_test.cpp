// What a run does with signals.
#include "trainer/signals.h"

#include <csignal>
#include <memory>

#include <gtest/gtest.h>

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

}  // namespace athanor::signals_test
