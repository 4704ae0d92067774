#pragma once

#include <gtest/gtest.h>

namespace athanor::test {

/// What `attempt` finds of measured times, an AssertionResult, in the first of ten attempts that succeeds:
/// other work on the machine may spoil one, but not all.
template <class Attempt> testing::AssertionResult undisturbed(const Attempt& attempt) {
  testing::AssertionResult found = attempt();
  for (int again = 1; again < 10 && !found; ++again) found = attempt();
  return found;
}

}  // namespace athanor::test
