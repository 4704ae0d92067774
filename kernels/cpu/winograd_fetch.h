#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/winograd.h"

// While a core multiplies, memory is idle. Meanwhile it may fetch what the transforms after the products
// need.

namespace athanor::cpu::winograd {

/// Memory that will be needed soon. Its cache lines are fetched in `pieces` parts, one with each product.
class Upcoming {
 public:
  Upcoming() = default;
  Upcoming(const void* begin, std::int64_t bytes, std::int64_t pieces)
      : begin_(static_cast<const char*>(begin)), step_(round_up(quotient_up(bytes, pieces), kLine)) {}

  void fetch(std::int64_t piece) const {
    for (std::int64_t i = 0; i < step_; i += kLine) __builtin_prefetch(begin_ + piece * step_ + i);
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const char* begin_ = nullptr;
  std::int64_t step_ = 0;
};

/// All rows of pixels of `z` from row `top` of image `first` up to row `bottom` of image `last`.
template <class T>
Upcoming upcoming_rows(const Images& z, const T* data, std::int64_t first, std::int64_t top,
                       std::int64_t last, std::int64_t bottom, std::int64_t pieces) {
  const std::int64_t rows = (last - first) * z.h + bottom - top, row = z.w * z.c;
  return {data + (first * z.h + top) * row, rows * row * static_cast<std::int64_t>(sizeof(T)), pieces};
}

/// The inputs x of up to `count` tiles from `first` that the tiles before them did not read. None if x is
/// null or there are no such tiles.
template <class T>
Upcoming upcoming_inputs(const Images& z, const T* x, const Tiles& tiles, std::int64_t pad_h,
                         std::int64_t first, std::int64_t count, std::int64_t pieces) {
  if (!x || first >= tiles.count) return {};
  const Tiles::Place from = tiles.at(first), to = tiles.at(std::min(first + count, tiles.count) - 1);
  return upcoming_rows(z, x, from.image, std::max<std::int64_t>(from.top - pad_h + kIn - kOut, 0), to.image,
                       std::min(to.top - pad_h + kIn, z.h), pieces);
}

/// The pixels of y, or of another tensor of its shape, that these tiles cover.
template <class T>
Upcoming upcoming_outputs(const Images& z, const T* y, const Tiles& tiles, std::int64_t first,
                          std::int64_t count, std::int64_t pieces) {
  if (!y || first >= tiles.count) return {};
  const Tiles::Place from = tiles.at(first), to = tiles.at(std::min(first + count, tiles.count) - 1);
  return upcoming_rows(z, y, from.image, from.top, to.image, std::min(to.top + kOut, z.h), pieces);
}

}  // namespace athanor::cpu::winograd
