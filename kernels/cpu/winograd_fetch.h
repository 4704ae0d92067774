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
      : begin_(static_cast<const char*>(begin)),
        bytes_(bytes),
        step_(round_up(quotient_up(bytes, pieces), kLine)) {}

  void fetch(std::int64_t piece) const {
    const std::int64_t end = std::min(bytes_, (piece + 1) * step_);
    for (std::int64_t i = piece * step_; i < end; i += kLine) __builtin_prefetch(begin_ + i);
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const char* begin_ = nullptr;
  std::int64_t bytes_ = 0, step_ = 0;
};

/// All rows of pixels of `z` from row `top` of image `first` up to row `bottom` of image `last`.
template <class T>
Upcoming upcoming_rows(const Images& z, const T* data, std::int64_t first, std::int64_t top,
                       std::int64_t last, std::int64_t bottom, std::int64_t pieces) {
  const std::int64_t rows = (last - first) * z.h + bottom - top, row = z.w * z.c;
  return {data + (first * z.h + top) * row, rows * row * static_cast<std::int64_t>(sizeof(T)), pieces};
}

/// The rows of x that up to `count` tiles from `first` read and the tiles before them did not. None if x is
/// null or there are no such tiles.
template <class T>
Upcoming upcoming_inputs(const Images& z, const T* x, const Tiles& tiles, std::int64_t pad_h,
                         std::int64_t first, std::int64_t count, std::int64_t pieces) {
  if (!x || first >= tiles.count) return {};
  const Tiles::Place from = tiles.at(first), to = tiles.at(std::min(first + count, tiles.count) - 1);
  const std::int64_t top = from.top == 0 ? 0 : std::max<std::int64_t>(from.top - pad_h + kIn - kOut, 0);
  return upcoming_rows(z, x, from.image, top, to.image, std::min(to.top - pad_h + kIn, z.h), pieces);
}

/// The rows of y, or of another tensor of its shape, in which these tiles are.
template <class T>
Upcoming upcoming_outputs(const Images& z, const T* y, const Tiles& tiles, std::int64_t first,
                          std::int64_t count, std::int64_t pieces) {
  if (!y || first >= tiles.count) return {};
  const Tiles::Place from = tiles.at(first), to = tiles.at(std::min(first + count, tiles.count) - 1);
  return upcoming_rows(z, y, from.image, from.top, to.image, std::min(to.top + kOut, z.h), pieces);
}

}  // namespace athanor::cpu::winograd
