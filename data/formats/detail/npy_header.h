#pragma once

#include <string>
#include <vector>

#include "data/formats/detail/file_bytes.h"
#include "data/formats/detail/indexed_store.h"

namespace athanor::detail {

/// A matching pair of arrays, images and labels.
struct NpyPair {
  std::int64_t image_data = 0, label_data = 0;  ///< offsets of the elements
  std::int64_t count = 0;
  ImageSpec spec = {};
  IntType label_type = {};
};
/// Compares the headers of two arrays with each other and with the arrays' sizes; the first kNpyHead bytes of
/// `images` and `labels` suffice. Throws IoError.
inline constexpr std::int64_t kNpyHead = 12 + (1 << 20);
NpyPair check_npy(const FileBytes& images, std::int64_t image_bytes, const FileBytes& labels,
                  std::int64_t label_bytes);
/// The same of the images alone.
NpyPair check_npy_images(const FileBytes& images, std::int64_t image_bytes);
/// Throws IoError on a label out of range.
std::vector<std::int64_t> npy_labels(const NpyPair& pair, const FileBytes& labels);
/// The numbers of an array [N, K] or [N] for `count` images, N: bool, whole numbers or floats. Throws
/// IoError.
std::vector<float> npy_numbers(const FileBytes& labels, std::int64_t count);

/// The header before `count` images; its length does not depend on the numbers.
std::vector<std::byte> npy_images_header(std::int64_t count, const ImageSpec& spec);
/// A complete file of labels, i64.
std::vector<std::byte> npy_labels_file(const std::vector<std::int64_t>& labels);

}  // namespace athanor::detail
