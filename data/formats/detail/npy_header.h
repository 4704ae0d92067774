#pragma once

#include <string>
#include <vector>

#include "data/formats/detail/dense_store.h"
#include "data/formats/detail/file_bytes.h"

namespace athanor::detail {

/// What stands at the front of an .npy file.
struct NpyHeader {
  std::string descr;  ///< "|u1", "<i8", ...
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::int64_t data = 0;  ///< where the elements start
};

/// Throws IoError unless `file` begins with such a header, of version 1, 2 or 3.
NpyHeader read_npy_header(const FileBytes& file);
/// What is written before `count` images; of one length, whatever the numbers.
std::vector<std::byte> npy_images_header(std::int64_t count, const ImageSpec& spec);
/// A whole file of labels, i64.
std::vector<std::byte> npy_labels_file(const std::vector<std::int64_t>& labels);

/// Images and labels that belong together.
struct NpyPair {
  NpyHeader images, labels;
  ImageSpec spec;
  IntType label_type;
};
/// Compares the headers of two arrays with each other and with the arrays' sizes; of `images` and `labels`
/// the first kNpyHead bytes suffice. Throws IoError.
inline constexpr std::int64_t kNpyHead = 12 + (1 << 20);
NpyPair check_npy(const FileBytes& images, std::int64_t image_bytes, const FileBytes& labels,
                  std::int64_t label_bytes);
/// The labels; sets the pair's classes.
std::vector<std::int64_t> npy_labels(NpyPair& pair, const FileBytes& labels, std::int64_t classes);

}  // namespace athanor::detail
