#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "tensor/tensor.h"

// What launchers decide, without CUDA: how many blocks there are, and how wide their accesses. The account of
// a step (kernels/account/) asks the same functions. A family with more to decide has a *_plan.h of its own.

namespace athanor::cuda {

/// Blocks of `threads` that cover `work` items, or as many as fill the device `waves` times; a kernel then
/// strides by the grid.
inline unsigned blocks_for(std::int64_t multiprocessors, std::int64_t work, int threads, int waves = 8) {
  return static_cast<unsigned>(std::min((work + threads - 1) / threads, multiprocessors * waves));
}

inline constexpr int kWarp = 32;
inline constexpr int kRowBlock = 256;  ///< threads of a block that works on rows

/// Of rows that `threads` share.
inline unsigned row_blocks(std::int64_t multiprocessors, std::int64_t rows, int threads) {
  return blocks_for(multiprocessors, rows, kRowBlock / threads, 16);
}

/// Where an operand begins, and the bytes of an element; null: it is not there.
struct Address {
  std::uintptr_t at = 0, element = 1;

  template <class T> Address(const T* p) : at(reinterpret_cast<std::uintptr_t>(p)), element(sizeof(T)) {}
  Address(const Tensor& t) {
    if (t.defined()) at = reinterpret_cast<std::uintptr_t>(t.raw_data()), element = size_of(t.dtype());
  }
};

/// The elements of `size` bytes that a thread moves at a time: 16 bytes' worth where every row of every
/// operand begins on that boundary, else 1. (f64 is there for checks: one element.)
inline int vector_width(std::size_t size, std::int64_t row, std::initializer_list<Address> operands) {
  const auto width = static_cast<int>(16 / size);
  if (size >= 8 || row % width != 0) return 1;
  for (const Address& operand : operands) {
    if (operand.at % (operand.element * static_cast<unsigned>(width)) != 0) return 1;
  }
  return width;
}

/// How many of the n elements of a copy go `width` at a time, where they are dense: what is left over is a
/// launch of its own, so that it does not narrow the rest.
inline std::int64_t vector_body(bool dense, std::int64_t n, std::int64_t width) {
  return dense && n > width ? n / width * width : n;
}

// Totals (total.h)
// --------------------------------------------------------------------------------------------

inline constexpr int kTotalThreads = 256;

/// Blocks that sum n elements, the widest of `widest` bytes, at four vectors a thread. Not of the device, so
/// that sums are the same on all.
inline std::int64_t total_blocks(std::int64_t n, std::size_t widest) {
  const std::int64_t work = std::int64_t{kTotalThreads} * static_cast<std::int64_t>(16 / widest) * 4;
  return std::clamp<std::int64_t>((n + work - 1) / work, 1, 1024);
}
/// Of integers, which add up exactly in any order.
inline unsigned exact_total_blocks(std::int64_t multiprocessors, std::int64_t n) {
  return std::max(blocks_for(multiprocessors, (n + 3) / 4, kTotalThreads), 1u);
}

}  // namespace athanor::cuda
