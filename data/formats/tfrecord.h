#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/formats/example.h"
#include "data/sample_writer.h"

namespace athanor {

/// The features of an Example that form a sample. An empty key: the first of the listed names that exists.
struct TfRecordOptions {
  std::string image_key = {};     ///< bytes; image/encoded, image, image_raw
  std::string label_key = {};     ///< int64; image/class/label, label
  std::string height_key = {};    ///< int64, as the next two, for raw images; image/height, height
  std::string width_key = {};     ///< image/width, width
  std::string channels_key = {};  ///< image/channels, channels, depth; default: derived from the size
  /// Added to each label: -1 if they count from 1.
  std::int64_t label_offset = 0;
  /// 0: the largest label + 1; opening then reads and checks the whole file. Otherwise opening checks only
  /// its framing, and spec() has no size.
  std::int64_t classes = 0;
};

/// Maps a file of TFRecords with tf.train.Examples: JPEG, PNG or WebP, detected by their first bytes, or raw
/// images [H, W, C] u8. Opening walks over the records and checks the CRC of each length; fetch() checks that
/// of the record. At least one record. Throws IoError naming file and offset. Source:
/// tensorflow/core/lib/io/record_writer.h (framing).
std::unique_ptr<Dataset> open_tfrecord(const std::filesystem::path& path,
                                       const TfRecordOptions& options = {});

/// Writes image/encoded, image/format ("JPEG", "PNG", "WEBP" or "RAW"), image/class/label and, for raw
/// images, image/height, image/width and image/channels.
std::unique_ptr<SampleWriter> create_tfrecord(const std::filesystem::path& path);

}  // namespace athanor
