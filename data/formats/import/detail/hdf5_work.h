#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "data/formats/import/detail/child_process.h"

// Everything libhdf5 does, and nothing else. It crashes and hangs on damaged files, and complains and crashes
// at the end of a process whose disk was full: so it works in a child
// (data/formats/import/detail/child_process.h).

namespace athanor::detail {

/// What the library says of the two data sets. It has been compared with nothing.
struct Hdf5Shape {
  std::int64_t rank = 0;                ///< of the images: 3 or 4
  std::array<std::uint64_t, 4> dims{};  ///< N, H, W and C, which is 1 where there is none
};

/// Writes to the owner an Hdf5Shape, N labels i64 and N images u8. Empty names: the first of the usual pairs.
/// Throws std::runtime_error: one line, without the file's name.
void read_hdf5(const std::string& path, std::string images, std::string labels, ChildProcess::Owner& owner);

/// Reads from the owner height, width and channels (i64 each), then again and again a count of images (i64)
/// and these, then 0, the count of labels (i64) and these (i64); makes the file of them. Throws
/// std::runtime_error, likewise.
void write_hdf5(const std::string& path, int deflate, ChildProcess::Owner& owner);

/// Throws IoError naming the file where this library was built without libhdf5.
void require_hdf5(const std::string& path);

}  // namespace athanor::detail
