#pragma once

#include <string>
#include <vector>

#include "data/formats/detail/file_bytes.h"
#include "data/formats/detail/indexed_store.h"

namespace athanor::detail {

/// Images and labels of two arrays that belong together.
struct NpyPair {
  std::int64_t image_data = 0, label_data = 0;  ///< where the elements start
  std::int64_t count = 0;
  ImageSpec spec;  ///< with the classes that are stated
  IntType label_type;
};
/// Compares the headers of two arrays with each other and with the arrays' sizes; of `images` and `labels`
/// the first kNpyHead bytes suffice. Throws IoError.
inline constexpr std::int64_t kNpyHead = 12 + (1 << 20);
NpyPair check_npy(const FileBytes& images, std::int64_t image_bytes, const FileBytes& labels,
                  std::int64_t label_bytes, std::int64_t classes);
/// Throws IoError on a label that is out of range.
std::vector<std::int64_t> npy_labels(const NpyPair& pair, const FileBytes& labels);

/// What is written before `count` images; of one length, whatever the numbers.
std::vector<std::byte> npy_images_header(std::int64_t count, const ImageSpec& spec);
/// A whole file of labels, i64.
std::vector<std::byte> npy_labels_file(const std::vector<std::int64_t>& labels);

}  // namespace athanor::detail
