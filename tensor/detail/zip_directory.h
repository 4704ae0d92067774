#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

// Zip files whose members are stored as they are. Private to tensor/.

namespace athanor::zip {

/// Where a member's bytes lie in the file.
struct Member {
  std::uint64_t begin = 0, bytes = 0;
  std::uint32_t crc32 = 0;  ///< of them, as the directory says
};

/// Whether a file begins as zip files do.
bool is_zip(std::span<const std::byte> file);

/// The members of a whole file by name, as its central directory lists them, ZIP64 included. Every member
/// lies within the file. Throws IoError beginning with `who`: a file that is cut off, a member that is
/// compressed, encrypted, or there twice. Source: PKWARE, APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.
std::map<std::string, Member, std::less<>> directory(std::span<const std::byte> file, const std::string& who);

/// The bytes of a member. Throws IoError, beginning with `who`, where their CRC-32 is not the directory's.
std::span<const std::byte> content(std::span<const std::byte> file, const Member& member,
                                   const std::string& who);

}  // namespace athanor::zip
