#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

// Zip files with uncompressed members. Private to nn/.

namespace athanor::zip {

/// The byte range of a member in the file.
struct Member {
  std::uint64_t begin = 0, bytes = 0;
  std::uint32_t crc32 = 0;  ///< of those bytes, from the directory
};

/// Whether a file begins like a zip file.
bool is_zip(std::span<const std::byte> file);

/// The members of a file by name, from its central directory, including ZIP64. Every member is inside the
/// file. Throws IoError, beginning with `who`, on a truncated file and on a compressed, encrypted or
/// duplicate member. Source: PKWARE, APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.
std::map<std::string, Member, std::less<>> directory(std::span<const std::byte> file, const std::string& who);

/// The bytes of a member. Throws IoError, beginning with `who`, if their CRC-32 differs from the directory's.
std::span<const std::byte> content(std::span<const std::byte> file, const Member& member,
                                   const std::string& who);

}  // namespace athanor::zip
