#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/dataset.h"
#include "data/detail/slot.h"
#include "data/loader.h"

namespace athanor::detail {

/// The result of reading a row of a batch.
struct Read {
  std::int64_t sample = 0;
  std::optional<Problem> failed;    ///< the row has no data
  std::optional<Problem> replaced;  ///< the row has another sample instead
  std::optional<Problem> harmless;  ///< the row has the sample, whose defect changes no pixel
};

/// Reads one sample, or a replacement if it cannot be read and `options` allow it.
class SampleReader {
 public:
  SampleReader(const Dataset& data, const LoaderOptions& options) : data_(data), options_(options) {}

  /// Does not throw errors of the sample. `worker`: for messages, -1 is the caller of next().
  Read read(std::int64_t sample, std::int64_t epoch, int worker, const SampleRow& row) const;
  /// "sample 7 (FILE, offset N)"
  std::string name_of(std::int64_t sample) const;

 private:
  /// The problem of a sample that cannot be read; `harmless`: of one that was.
  std::optional<Problem> try_read(std::int64_t sample, std::int64_t epoch, int worker, SampleRow row,
                                  std::optional<Problem>& harmless) const;
  std::int64_t substitute(std::int64_t sample, std::int64_t epoch, std::uint64_t attempt) const;

  const Dataset& data_;
  const LoaderOptions& options_;
};

}  // namespace athanor::detail
