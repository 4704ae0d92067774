#pragma once

#include <string_view>
#include <vector>

#include "data/formats/detail/indexed_store.h"

namespace athanor::detail {

/// The header of our values, with the offsets of its fields; documented in data/formats/lmdb.h.
inline constexpr std::string_view kLmdbMagic = "ATH1";
inline constexpr std::int64_t kLmdbHeader = 32, kLmdbCodec = 4, kLmdbLabel = 8, kLmdbShape = 16,
                              kLmdbCrc = 28;

/// Positions of the values in an LMDB file's main database, in key order, with labels of 0. Checks every page
/// and offset, and detects cycles. Throws IoError.
std::vector<IndexEntry> lmdb_values(const FileBytes& file);

}  // namespace athanor::detail
