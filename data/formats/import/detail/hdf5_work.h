#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "data/formats/import/detail/child_process.h"

// All calls of libhdf5. They run in a child process (data/formats/import/detail/child_process.h): libhdf5
// crashes and hangs on damaged files, and after a failed write to a full disk it complains and crashes when
// the process exits.

namespace athanor::detail {

/// Shape of the two data sets as the library reports it, unchecked.
struct Hdf5Shape {
  std::int64_t rank = 0;                ///< of the images: 3 or 4
  std::array<std::uint64_t, 4> dims{};  ///< N, H, W and C, or 1 for missing axes
};

/// read_hdf5()'s message if another program has locked the file.
inline constexpr char kHdf5Locked[] = "is open for writing in another program";

/// Writes to the owner an Hdf5Shape, N labels i64 and N images u8. Empty names: the first of the usual pairs.
/// Throws std::runtime_error: one line, without the file's name.
void read_hdf5(const std::string& path, std::string images, std::string labels, ChildProcess::Owner& owner);

/// Reads from the owner height, width and channels (i64 each); then, repeatedly, a count of images (i64) and
/// the images; then 0, the count of labels (i64) and the labels (i64). Writes them to the file. Throws
/// std::runtime_error likewise.
void write_hdf5(const std::string& path, int deflate, ChildProcess::Owner& owner);

/// Throws IoError naming the file if this library was built without libhdf5.
void require_hdf5(const std::string& path);

}  // namespace athanor::detail
