#pragma once

#include <cstdint>
#include <vector>

#include "data/convert.h"
#include "data/image/image.h"

namespace athanor {

/// Set at most one of the first two.
struct RecodeOptions {
  /// Images with a longer shorter side become JPEGs with this shorter side, in proportion. Others are
  /// unchanged.
  std::int64_t shorter_side = 0;
  int quality = 90;  ///< of these JPEGs, 1 to 100; chroma at half the resolution
  /// All images become raw with this size: scaled to cover it, then centre-cropped.
  ImageSize raw = {};
  /// Also decodes unchanged images, to find damaged ones.
  bool check = true;
  /// Dataset::fields(), to check a sample's fields against each other; empty: checks only images.
  std::vector<FieldSpec> fields = {};
};

/// Decodes, resizes and encodes, for ConvertOptions::make_change. Encoded images become RGB; raw ones keep
/// their channels, which must be 1 or 3 for JPEG. Throws ArgumentError on invalid options.
SampleChange make_recoder(const RecodeOptions& options);

}  // namespace athanor
