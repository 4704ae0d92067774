#pragma once

#include <memory>

#include "data/dataset.h"

namespace athanor {

/// Samples that come one after the other, and only so: a format that is imported, not trained from.
class SampleSequence {
 public:
  SampleSequence() = default;
  virtual ~SampleSequence() = default;
  SampleSequence(const SampleSequence&) = delete;
  SampleSequence& operator=(const SampleSequence&) = delete;

  virtual std::int64_t size() const = 0;
  /// As Dataset::spec().
  virtual const ImageSpec& spec() const = 0;
  /// The next of size() samples; valid until the next call. Throws IoError naming the file.
  virtual StoredSample next() = 0;
};

}  // namespace athanor
