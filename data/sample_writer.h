#pragma once

#include "data/dataset.h"

namespace athanor {

/// Writes a file or folder that a data set reads back: same samples, order and labels. Samples are copied in
/// their stored bytes, so converting loses nothing.
class SampleWriter {
 public:
  SampleWriter() = default;
  virtual ~SampleWriter() = default;  ///< Without finish() it removes everything.
  SampleWriter(const SampleWriter&) = delete;
  SampleWriter& operator=(const SampleWriter&) = delete;

  /// Adds the next sample. Throws ArgumentError if the format cannot hold it, naming one that can; IoError if
  /// it cannot be written.
  virtual void add(const StoredSample& sample) = 0;
  /// Completes the file, durably, under its final name. Throws IoError.
  virtual void finish() = 0;
};

}  // namespace athanor
