#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "data/dataset.h"
#include "data/sample_writer.h"

namespace athanor {

/// Changes a sample, using `bytes` for memory if needed; `bytes` is the same in each call. For one thread at
/// a time.
using SampleChange = std::function<StoredSample(const StoredSample& sample, std::vector<std::byte>& bytes)>;

struct ConvertOptions {
  int threads = 1;         ///< that read, decode and encode; the samples written do not depend on it
  std::int64_t limit = 0;  ///< maximum number of samples, in order; 0: all
  /// Shuffles samples by this seed, instead of the source's order.
  std::optional<std::uint64_t> shuffle_seed = {};
  /// Creates the change to each sample, once per thread. IoErrors need not name the sample.
  std::function<SampleChange()> make_change = {};
  /// Called after each sample with the samples and bytes written so far. If it returns false, convert() ends,
  /// and `to` must not be finished.
  std::function<bool(std::int64_t samples, std::int64_t bytes)> progress = {};
};

/// Adds the samples of `from` to `to` in order, as stored or changed. Returns false if `progress` did. Does
/// not call finish(). Throws what reading or writing throws; among unreadable samples, for the first in
/// order.
bool convert(const Dataset& from, SampleWriter& to, const ConvertOptions& options = {});

}  // namespace athanor
