#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/formats/example.h"
#include "data/sample_writer.h"

namespace athanor {

/// Which features of an Example make a sample. An empty key: the first of those named that is there.
struct TfRecordOptions {
  std::string image_key = {};   ///< bytes; image/encoded, image, image_raw
  std::string label_key = {};   ///< int64; image/class/label, label
  std::string height_key = {};  ///< int64, as the next two, of raw images; image/height, height
  std::string width_key = {};   ///< image/width, width
  std::string channels_key =
      {};  ///< image/channels, channels, depth; where there is none it follows from the size
  /// Added to each label: -1 where they are counted from 1.
  std::int64_t label_offset = 0;
  /// 0: the largest label + 1, and all of the file is read, and checked, at opening. Else only its framing
  /// is, and spec() states no size.
  std::int64_t classes = 0;
};

/// Maps a file of TFRecords that are tf.train.Examples: JPEG, PNG or WebP, known by their first bytes, or raw
/// images [H, W, C] u8. Opening walks over the records and checks the CRC of each length; fetch() checks that
/// of the record. At least one record. Throws IoError naming file and offset. Source:
/// tensorflow/core/lib/io/record_writer.h (framing).
std::unique_ptr<Dataset> open_tfrecord(const std::filesystem::path& path,
                                       const TfRecordOptions& options = {});

/// Writes image/encoded, image/format ("JPEG", "PNG", "WEBP" or "RAW"), image/class/label and, of raw images,
/// image/height, image/width and image/channels.
std::unique_ptr<SampleWriter> create_tfrecord(const std::filesystem::path& path);

}  // namespace athanor
