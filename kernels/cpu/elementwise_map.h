#pragma once

#include "kernels/cpu/iterate.h"

// What the elementwise kernels have in common: y = f(x) and y = f(a, b) over tensors of any strides.

namespace athanor::cpu {

// Elements worked on at a time. Strided and repeated operands are first laid out densely in a buffer of that
// size, so that the maths of each op is compiled once, as a vector loop.
constexpr std::int64_t kChunk = 512;

// Bytes: an array of a half type would be cleared first.
template <class T> struct Buffer {
  alignas(64) std::byte bytes[kChunk * static_cast<std::int64_t>(sizeof(T))];
};

template <class T> const T* chunk(const T* x, std::int64_t step, std::int64_t n, Buffer<T>& buffer) {
  if (step == 1) return x;
  T* dense = reinterpret_cast<T*>(buffer.bytes);
  if (step == 0) {
    const T value = *x;
    for (std::int64_t i = 0; i < n; ++i) dense[i] = value;
  } else {
    for (std::int64_t i = 0; i < n; ++i) dense[i] = x[i * step];
  }
  return dense;
}

// y = f(x), for y dense.
template <class T, class F> void map(CpuContext& context, const Tensor& x, const Tensor& y, const F& f) {
  using A = Accumulate<T>;
  const T* from = x.data<T>();
  T* to = y.data<T>();
  const Walk<2> walk(y.shape(), {&x, &y});
  const std::int64_t step = walk.row_stride(0);
  for_each_row<kFastType<T>>(context, walk, [=](const auto& offset, std::int64_t n) {
    Buffer<T> buffer;
    for (std::int64_t at = 0; at < n; at += kChunk) {
      const std::int64_t count = std::min(n - at, kChunk);
      const T* in = chunk(from + offset[0] + at * step, step, count, buffer);
      T* out = to + offset[1] + at;
      for (std::int64_t i = 0; i < count; ++i) out[i] = T(f(A(in[i])));
    }
  });
}

// y = f(a, b), broadcast, for y dense.
template <class T, class F>
void map(CpuContext& context, const Tensor& a, const Tensor& b, const Tensor& y, const F& f) {
  using A = Accumulate<T>;
  const T *left = a.data<T>(), *right = b.data<T>();
  T* to = y.data<T>();
  const Walk<3> walk(y.shape(), {&a, &b, &y});
  const std::int64_t sa = walk.row_stride(0), sb = walk.row_stride(1);
  for_each_row<kFastType<T>>(context, walk, [=](const auto& offset, std::int64_t n) {
    Buffer<T> buffer_a, buffer_b;
    for (std::int64_t at = 0; at < n; at += kChunk) {
      const std::int64_t count = std::min(n - at, kChunk);
      const T* pa = chunk(left + offset[0] + at * sa, sa, count, buffer_a);
      const T* pb = chunk(right + offset[1] + at * sb, sb, count, buffer_b);
      T* out = to + offset[2] + at;
      for (std::int64_t i = 0; i < count; ++i) out[i] = T(f(A(pa[i]), A(pb[i])));
    }
  });
}

}  // namespace athanor::cpu
