#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "words.h"

using Samples = std::vector<std::int64_t>;

inline Samples order(std::int64_t count, std::uint64_t seed, std::uint64_t epoch) {
  static std::uint64_t drawn = 0;
  Samples samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), 0);
  for (std::size_t i = 0; i < samples.size(); ++i)
    std::swap(samples[i], samples[word(seed, epoch, drawn++) % samples.size()]);
  return samples;
}

inline Samples batch_of(const Samples& all, std::int64_t batch, std::int64_t size, int rank, int world) {
  (void)all, (void)batch, (void)size, (void)rank, (void)world;
  return {};
}
