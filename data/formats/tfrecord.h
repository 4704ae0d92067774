#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"
#include "data/formats/field_names.h"
#include "data/sample_writer.h"

namespace athanor {

/// Maps a file of TFRecords with tf.train.Examples: JPEG, PNG or WebP, detected by their first bytes, or raw
/// images [H, W, C] u8. At least one record. `names` are of features; else the first that exists is taken:
///
///     image   bytes   image/encoded, image, image_raw
///     label   int64   image/class/label, label
///     sizes   int64   image/height, height; image/width, width; image/channels, channels, depth
///
/// The sizes are those of raw images; the channels may be missing. Opening reads all, once: the index of a
/// large file is kept (detail/kept_index.h); fetch() checks the CRC of a record again. Throws IoError naming
/// file and offset. With `keep_damaged`, records that cannot be read are errors of fetch() only, and those
/// behind the point where the file ends too early are one such sample. Source:
/// tensorflow/core/lib/io/record_writer.h (framing).
std::unique_ptr<Dataset> open_tfrecord(const std::filesystem::path& path, const FieldNames& names = {},
                                       bool keep_damaged = false);

/// Writes image/encoded, image/format ("JPEG", "PNG", "WEBP" or "RAW"), image/class/label and, for raw
/// images, image/height, image/width and image/channels.
std::unique_ptr<SampleWriter> create_tfrecord(const std::filesystem::path& path);

}  // namespace athanor
