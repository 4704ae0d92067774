#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace athanor::random_ops {

/// The week's number, a seed that is another one every week; prints it as the flag that asks for it again.
inline std::uint64_t seed_of_the_week() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seed = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::weeks>(now).count());
  std::printf("--seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

}  // namespace athanor::random_ops
