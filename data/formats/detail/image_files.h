#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "tensor/regular_file.h"

// Images in separate files, in folders.

namespace athanor::detail {

/// The codec of a file's suffix, in any case: .png, .webp, .jpg or .jpeg; else nullopt.
std::optional<Codec> codec_named(std::string_view file);
/// The suffix for a codec: "jpg", "png" or "webp".
inline const char* suffix_of(Codec codec) {
  return codec == Codec::jpeg ? "jpg" : name_of(codec);
}

/// Whether the name ends in .heic or .heif, in any case: common for phone photos.
bool is_heic_named(std::string_view file);

/// The names in a folder, in byte order; skips hidden ones, which begin with a dot. Throws
/// IoError.
std::vector<std::string> sorted_names(const std::filesystem::path& folder, const char* format);

/// Reads a file of at most 1 GiB into `to` after its first `from` bytes, growing it if needed. Returns the
/// end. Throws IoError, "FORMAT: NAME: ...".
std::size_t append_file(const RegularFile& file, std::vector<std::byte>& to, std::size_t from,
                        const char* format, const std::function<std::string()>& name);

}  // namespace athanor::detail
