#pragma once

#include <cstdint>

// Random words that depend on nothing but their arguments (SplitMix64's mixing, Steele et al. 2014).

inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}
inline std::uint64_t word(std::uint64_t seed, std::uint64_t epoch, std::uint64_t i) {
  return mixed(mixed(mixed(seed) + epoch) + i);
}
