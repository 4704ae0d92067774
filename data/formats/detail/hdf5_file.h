#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "data/formats/detail/hdf5_library.h"

// Everything libhdf5 does to read a file, and nothing else: what must not be trusted to survive it.

namespace athanor::detail {

/// Why the file cannot be read: one line, without its name.
struct Hdf5Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What the library says of the two data sets. It has been compared with nothing.
struct Hdf5Shape {
  std::int64_t rank = 0;                ///< of the images: 3 or 4
  std::array<std::uint64_t, 4> dims{};  ///< N, H, W and C, which is 1 where there is none
  std::uint64_t chunk = 0;              ///< images in a chunk; 0: they lie in one piece
  bool operator==(const Hdf5Shape&) const = default;
};

/// Images [N, H, W, C] or [N, H, W] u8 and labels [N] or [N, 1]. Not thread-safe; calls the library without
/// its lock. Every member throws Hdf5Refusal.
class Hdf5File {
 public:
  /// Empty names: the first of the usual pairs.
  Hdf5File(const std::string& path, std::string images, std::string labels);

  const Hdf5Shape& shape() const { return shape_; }
  /// Images [first, first + count) into `to`, which has their size.
  void read_images(std::int64_t first, std::int64_t count, std::span<std::byte> to) const;
  /// Labels [first, first + count) as i64 into `to`, which has their size.
  void read_labels(std::int64_t first, std::int64_t count, std::span<std::byte> to) const;

 private:
  Hdf5Handle open(const std::string& name) const;

  Hdf5Handle file_, images_, labels_;
  Hdf5Shape shape_;
};

}  // namespace athanor::detail
