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
/// The same as bytes (version 1), of a length that depends on neither the shape nor the type.
std::vector<std::byte> npy_header(const char* descr, const std::vector<std::int64_t>& shape);

/// A store of the images in one .npy and the labels in another.
std::unique_ptr<SampleStore> npy_store(std::shared_ptr<const FileBytes> images, const FileBytes& labels,
                                       std::int64_t classes);

}  // namespace athanor::detail
