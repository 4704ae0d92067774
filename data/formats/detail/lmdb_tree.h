#pragma once

#include <string_view>
#include <vector>

#include "data/formats/detail/indexed_store.h"

namespace athanor::detail {

/// The header of a value of ours, and where its fields lie; data/formats/lmdb.h shows them.
inline constexpr std::string_view kLmdbMagic = "ATH1";
inline constexpr std::int64_t kLmdbHeader = 32, kLmdbCodec = 4, kLmdbLabel = 8, kLmdbShape = 16,
                              kLmdbCrc = 28;

/// Where the values of an LMDB file's main database lie, in the order of their keys, with labels of 0. Every
/// page and offset is checked; a tree that bites its own tail is found. Throws IoError.
std::vector<IndexEntry> lmdb_values(const FileBytes& file);

}  // namespace athanor::detail
