#pragma once

#include "data/dataset.h"

namespace athanor {

/// Writes a file or folder that a data set reads back: same samples, same order, same labels. Between the two
/// a sample travels as the bytes it is stored in, so that converting loses nothing.
class SampleWriter {
 public:
  SampleWriter() = default;
  virtual ~SampleWriter() = default;  ///< Without finish(): nothing is left behind.
  SampleWriter(const SampleWriter&) = delete;
  SampleWriter& operator=(const SampleWriter&) = delete;

  /// The next sample. Throws ArgumentError where the format cannot hold it, saying which can; IoError where
  /// it cannot be written.
  virtual void add(const StoredSample& sample) = 0;
  /// Makes the file whole, durable and visible under its name. Throws IoError.
  virtual void finish() = 0;
};

}  // namespace athanor
