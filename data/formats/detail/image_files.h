#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "tensor/io/regular_file.h"

// Images in separate files, in folders.

namespace athanor::detail {

/// The codec of a file's suffix, in any case: .png, .webp, .jpg, .jpeg, .jpe or .jfif; else nullopt.
std::optional<Codec> codec_named(std::string_view file);
/// The codec of an encoded image, by its first bytes; nullopt for any other.
std::optional<Codec> codec_of(std::span<const std::byte> bytes);
/// The suffix for a codec: "jpg", "png" or "webp".
inline const char* suffix_of(Codec codec) {
  return codec == Codec::jpeg ? "jpg" : name_of(codec);
}

/// The names in a folder, in byte order. Throws IoError.
std::vector<std::string> names_in(const std::filesystem::path& folder, const char* format);
/// A folder that a program made beside photos, and that is no class: __MACOSX, @eaDir, $RECYCLE.BIN.
bool is_made_by_programs(std::string_view folder);
/// Those of `names` in `folder` that are folders to look into, in byte order. Counts the others: what is
/// hidden or made by programs, a link to a folder around it or to another of them, and files, as "files
/// beside WANTED".
std::vector<std::string> folders_among(const std::vector<std::string>& names,
                                       const std::filesystem::path& folder, const char* wanted,
                                       std::vector<Unused>& unused);

/// The cause of Unused for folders that cannot be read.
inline constexpr char kUnreadable[] = "folders that cannot be read";
/// The cause for photos that are not read, common on phones, and what to do with them.
inline constexpr char kHeic[] = "HEIC files";
inline constexpr char kHeicAdvice[] =
    "convert HEIC images to JPEG first, each with heif-convert IMAGE NEW.jpg (package libheif-examples)";

/// The images below a folder.
struct ImageFiles {
  struct File {
    std::string name;  ///< relative to the folder, in byte order
    Codec codec;
  };
  std::vector<File> files;
  std::vector<Unused> unused;
};
/// Looks into sub-folders too, and follows symbolic links to folders, each folder once, and none around the
/// first one. `shown` comes before names in `unused`: "class/". A folder that cannot be read is an IoError
/// or, if `keep_walking`, counted.
ImageFiles find_images(const std::filesystem::path& folder, const char* format, const std::string& shown = {},
                       bool keep_walking = false);

/// Reads a file of at most 1 GiB into `to` after its first `from` bytes, growing it if needed. Returns the
/// end. Throws IoError, "FORMAT: NAME: ...".
std::size_t append_file(const RegularFile& file, std::vector<std::byte>& to, std::size_t from,
                        const char* format, const std::function<std::string()>& name);

/// What one of `files` holds, in a folder as for RegularFile: a hash of its size and, of at most 5,000 files,
/// its first compared_bytes(). 0 where so many would take too long, or if it cannot be read.
std::uint64_t file_id(const std::filesystem::path& path, int folder, std::int64_t files);

}  // namespace athanor::detail
