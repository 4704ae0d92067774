#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/dataset.h"
#include "data/detail/slot.h"
#include "data/loader.h"

namespace athanor::detail {

/// What a row of a batch turned out to hold.
struct Read {
  std::int64_t sample = 0;
  std::optional<Problem> failed;    ///< the row holds nothing
  std::optional<Problem> replaced;  ///< it holds another sample than it was to
};

/// Reads one sample, and another one in its place where it cannot be read and `options` say so.
class SampleReader {
 public:
  SampleReader(const Dataset& data, const LoaderOptions& options) : data_(data), options_(options) {}

  /// Throws nothing that has to do with the sample. `worker`: for messages, -1 is the caller of next().
  Read read(std::int64_t sample, std::int64_t epoch, int worker, const SampleRow& row) const;
  /// "sample 7 (FILE, offset N)"
  std::string name_of(std::int64_t sample) const;

 private:
  std::optional<Problem> try_read(std::int64_t sample, std::int64_t epoch, int worker, SampleRow row) const;
  std::int64_t substitute(std::int64_t sample, std::int64_t epoch, std::uint64_t attempt) const;

  const Dataset& data_;
  const LoaderOptions& options_;
};

}  // namespace athanor::detail
