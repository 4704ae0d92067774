#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/context.h"

// What the costs in this folder are written with. A cost is the distinct bytes of global memory that a launch
// reads, and those that it writes: what DRAM moves if nothing is fetched twice. `simt/counters.h` counts the
// same of a kernel that is emulated, and a test compares them.

namespace athanor::account {

inline std::int64_t size(DType dtype) {
  return static_cast<std::int64_t>(size_of(dtype));
}
/// Of an element of the accumulation type.
inline std::int64_t wide(const Tensor& x) {
  return x.dtype() == DType::f64 ? 8 : 4;
}
/// Elements of 16 bytes.
inline std::int64_t per_vector(DType dtype) {
  return std::max<std::int64_t>(16 / size(dtype), 1);
}
constexpr std::int64_t pieces(std::int64_t n, std::int64_t of) {
  return (n + of - 1) / of;
}

/// Bytes of a tensor; an axis that is broadcast counts once, an undefined tensor 0.
inline std::int64_t bytes(const Tensor& x) {
  if (!x.defined()) return 0;
  std::int64_t count = 1;
  for (int i = 0; i < x.rank(); ++i) count *= x.shape()[i] > 1 && x.strides()[i] == 0 ? 1 : x.shape()[i];
  return count * size(x.dtype());
}
/// Of both, once if they are the same memory.
inline std::int64_t bytes(const Tensor& a, const Tensor& b) {
  const bool same = a.defined() && b.defined() && a.raw_data() == b.raw_data() && a.shape() == b.shape();
  return bytes(a) + (same ? 0 : bytes(b));
}

inline void launch(AccountContext& context, const char* kernel, std::int64_t read, std::int64_t written) {
  context.add({.kernel = kernel, .bytes_read = read, .bytes_written = written});
}

/// A kernel that writes all of y from what it reads; nothing is launched for an empty y.
inline void map(AccountContext& context, const char* kernel, std::int64_t read, const Tensor& y) {
  if (y.numel() > 0) launch(context, kernel, read, bytes(y));
}

/// Sums of blocks, and their sum: cuda::total() over n elements, the widest of which has `element` bytes.
inline void total(AccountContext& context, const char* kernel, std::int64_t n, std::int64_t element,
                  std::int64_t read, std::int64_t result) {
  const std::int64_t blocks = std::clamp<std::int64_t>(pieces(n, 256 * 4 * (16 / element)), 1, 1024);
  launch(context, kernel, read, blocks * 8);
  launch(context, kernel, blocks * 8, result);
}

/// The same for integers: cuda::exact_total().
inline void exact_total(AccountContext& context, const char* kernel, const Tensor& x) {
  const std::int64_t wanted = pieces(pieces(x.numel(), 4), 256), most = context.multiprocessors * 8,
                     blocks = std::max<std::int64_t>(std::min(wanted, most), 1);
  launch(context, kernel, bytes(x), blocks * 8);
  launch(context, kernel, blocks * 8, 8);
}

}  // namespace athanor::account
