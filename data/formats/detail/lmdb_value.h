#pragma once

#include <cstdint>
#include <span>
#include <string_view>

// The header of our values in an LMDB environment; data/formats/lmdb.h shows it.

namespace athanor::detail {

inline constexpr std::string_view kLmdbMagic = "ATH1";
inline constexpr std::int64_t kLmdbHeader = 32, kLmdbCodec = 4, kLmdbLabel = 8, kLmdbShape = 16,
                              kLmdbCrc = 28;

}  // namespace athanor::detail
