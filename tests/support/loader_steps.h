#pragma once

#include <cstdint>
#include <vector>

#include "data/loader.h"

namespace athanor::test {

/// A batch, copied.
struct LoadedBatch {
  std::vector<std::int64_t> samples, labels;
  std::vector<std::uint8_t> pixels;
  bool operator==(const LoadedBatch&) const = default;
};

inline LoadedBatch copy_of(const Batch& batch) {
  const auto n = static_cast<std::size_t>(batch.size());
  const auto *samples = batch.samples.data<std::int64_t>(), *labels = batch.labels.data<std::int64_t>();
  const auto* pixels = batch.images.data<std::uint8_t>();
  return {{samples, samples + n}, {labels, labels + n}, {pixels, pixels + batch.images.numel()}};
}

/// The rest of an epoch.
inline std::vector<LoadedBatch> steps_of(Loader& loader, std::int64_t epoch, std::int64_t delivered = 0) {
  std::vector<LoadedBatch> steps;
  Batch batch;
  loader.start_epoch(epoch, delivered);
  while (loader.next(batch)) steps.push_back(copy_of(batch));
  return steps;
}

inline std::vector<std::int64_t> samples_of(const std::vector<LoadedBatch>& steps) {
  std::vector<std::int64_t> all;
  for (const LoadedBatch& step : steps) all.insert(all.end(), step.samples.begin(), step.samples.end());
  return all;
}

}  // namespace athanor::test
