#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "tensor/regular_file.h"

// Images that are files of their own, in folders.

namespace athanor::detail {

/// What the end of a file's name says, in any case: .png, .webp, .jpg or .jpeg; else nothing.
std::optional<Codec> codec_named(std::string_view file);
/// What such a name ends in: "jpg", "png" or "webp".
inline const char* suffix_of(Codec codec) {
  return codec == Codec::jpeg ? "jpg" : name_of(codec);
}

/// Whether it ends in .heic or .heif, in any case: as telephones call their photos.
bool is_heic_named(std::string_view file);

/// The names in a folder, in byte order; hidden ones, which begin with a dot, are passed over. Throws
/// IoError.
std::vector<std::string> sorted_names(const std::filesystem::path& folder, const char* format);

/// Reads a file of at most 1 GiB behind the first `from` bytes of `to`, which grows where it must. Returns
/// where it ends. Throws IoError, "FORMAT: NAME: ...".
std::size_t append_file(const RegularFile& file, std::vector<std::byte>& to, std::size_t from,
                        const char* format, const std::function<std::string()>& name);

}  // namespace athanor::detail
