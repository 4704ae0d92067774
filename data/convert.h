#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "data/dataset.h"
#include "data/sample_writer.h"

namespace athanor {

/// Makes another sample of one, in `bytes` where it needs memory; `bytes` is the same for each call. For one
/// thread at a time.
using SampleChange = std::function<StoredSample(const StoredSample& sample, std::vector<std::byte>& bytes)>;

struct ConvertOptions {
  int threads = 1;         ///< that read (and decode and encode); the samples written do not depend on it
  std::int64_t limit = 0;  ///< only so many samples, the first of the order; 0: all
  /// Samples in an order drawn from this seed, instead of the source's.
  std::optional<std::uint64_t> shuffle_seed = {};
  /// Makes what happens to each sample on its way, once for each thread. IoErrors need not name the sample.
  std::function<SampleChange()> make_change = {};
  /// Called after each sample with the samples and bytes written so far. Where it returns false, convert()
  /// ends, and `to` must not be finished.
  std::function<bool(std::int64_t samples, std::int64_t bytes)> progress = {};
};

/// Adds the samples of `from` to `to`, in order, as they are stored or as they are changed. Returns false
/// where `progress` did. Does not call finish(). Throws what reading or writing does; of samples, the first
/// in order that cannot be read.
bool convert(const Dataset& from, SampleWriter& to, const ConvertOptions& options = {});

}  // namespace athanor
