#pragma once

#include <vector>

#include "data/formats/detail/file_bytes.h"

namespace athanor::detail {

struct LmdbValue {
  std::int64_t offset = 0, bytes = 0;
};

/// Where the values of an LMDB file's main database lie, in the order of their keys. Every page and offset is
/// checked; a tree that bites its own tail is found. Throws IoError.
std::vector<LmdbValue> lmdb_values(const FileBytes& file);

}  // namespace athanor::detail
