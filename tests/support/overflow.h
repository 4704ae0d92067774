#pragma once

#include <sys/resource.h>

namespace athanor::test {

[[gnu::noinline]] inline int dive(int depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  return depth < 0 ? 0 : dive(depth + 1) + frame[0];
}

/// Needs more stack than the calling thread has: 1 MiB, where it is the first.
inline void overflow_the_stack() {
  rlimit limit{};
  getrlimit(RLIMIT_STACK, &limit);
  limit.rlim_cur = 1 << 20;
  setrlimit(RLIMIT_STACK, &limit);
  dive(0);
}

}  // namespace athanor::test
