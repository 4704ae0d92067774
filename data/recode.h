#pragma once

#include <cstdint>
#include <vector>

#include "data/convert.h"
#include "data/image/image.h"

namespace athanor {

/// One of the first two, or neither.
struct RecodeOptions {
  /// Images whose shorter side is longer become JPEGs of that shorter side, their proportions kept. Others
  /// stay as they are.
  std::int64_t shorter_side = 0;
  int quality = 90;  ///< of these JPEGs, 1 to 100; colours at half the resolution
  /// All images become raw ones of this size: as large as covers it, and the middle cut out.
  ImageSize raw = {};
  /// Images that stay as they are, too, are decoded: those that cannot be are found.
  bool check = true;
  /// Dataset::fields(), to check those of a sample against each other; none: images alone are looked at.
  std::vector<FieldSpec> fields = {};
};

/// Decodes, resizes and encodes, for ConvertOptions::make_change. Encoded images become RGB; raw ones keep
/// their channels, which must be 1 or 3 to become JPEGs. Throws ArgumentError where the options cannot be.
SampleChange make_recoder(const RecodeOptions& options);

}  // namespace athanor
