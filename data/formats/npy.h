#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/sample_writer.h"

namespace athanor {

struct NpyOptions {
  /// The .npy file of labels. Empty: next to the images, with the last "images", "image" or "x" of the name
  /// (whichever occurs) replaced by "labels", "label" or "y".
  std::filesystem::path labels = {};
  /// 0: the largest label + 1.
  std::int64_t classes = 0;
};

/// Maps NumPy's .npy, versions 1 to 3: images [N, H, W, C] or [N, H, W] u8 in C order, and labels [N] or [N,
/// 1] of any whole type and byte order; N >= 1. Throws IoError naming file and offset; Fortran order is
/// refused. Source: NumPy, numpy.lib.format.
std::unique_ptr<Dataset> open_npy(const std::filesystem::path& images, const NpyOptions& options = {});

/// Writes such a pair: raw images of one size, labels as i64. `labels` empty: as above.
std::unique_ptr<SampleWriter> create_npy(const std::filesystem::path& images,
                                         const std::filesystem::path& labels = {});

struct NpzOptions {
  /// The arrays' names, without .npy. Empty: the first pair found of images and labels, image and label, x
  /// and y, x_train and y_train, x_test and y_test, train_images and train_labels, test_images and
  /// test_labels, X and Y, arr_0 and arr_1.
  std::string images = {}, labels = {};
  /// 0: the largest label + 1.
  std::int64_t classes = 0;
};

/// Reads two such arrays from an .npz, stored or deflated, into memory, and checks their CRC-32. Throws
/// IoError naming file, member and offset in the member, and in a build without libzip.
std::unique_ptr<Dataset> open_npz(const std::filesystem::path& path, const NpzOptions& options = {});

/// Writes an .npz with the arrays "images" and "labels", not compressed. Needs no libzip.
std::unique_ptr<SampleWriter> create_npz(const std::filesystem::path& path);

}  // namespace athanor
