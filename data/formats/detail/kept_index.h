#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "data/formats/detail/file_bytes.h"
#include "data/formats/detail/indexed_store.h"

namespace athanor::detail {

/// Smaller files are read through each time: that takes no longer than finding their index.
inline constexpr std::int64_t kLeastIndexed = std::int64_t{1} << 20;

/// The index that `build` makes of a file, from cache_folder("indexed") if it lies there. It is kept for the
/// file's path, size and time, and `reader`: the format, and the names of fields. One that is damaged, or of
/// another file, is made again. A file that was changed in the last two seconds is not yet kept, since its
/// time may stay the same if it changes again; nor is any where there is no folder to write to.
SampleIndex kept_index(const FileBytes& file, std::string_view reader,
                       const std::function<SampleIndex()>& build);

}  // namespace athanor::detail
