#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "simt/packets.h"

// Accesses of 16 bytes: what a warp needs to keep the memory busy.

namespace athanor::cuda {

/// N neighbouring elements, moved by one instruction where N * sizeof(T) is at most 16.
template <class T, int N> struct alignas(sizeof(T) * N) Vec {
  T value[N];

  __host__ __device__ T& operator[](int i) { return value[i]; }
  __host__ __device__ const T& operator[](int i) const { return value[i]; }
};

namespace detail {
template <int bytes> struct BitsOf { using Type = Vec<std::uint64_t, 2>; };
template <> struct BitsOf<1> { using Type = std::uint8_t; };
template <> struct BitsOf<2> { using Type = std::uint16_t; };
template <> struct BitsOf<4> { using Type = std::uint32_t; };
template <> struct BitsOf<8> { using Type = std::uint64_t; };
}  // namespace detail

/// What moves 1, 2, 4, 8 or 16 bytes in one instruction.
template <int bytes> using Bits = typename detail::BitsOf<bytes>::Type;

/// Elements in 16 bytes.
template <class T> inline constexpr int kVec = 16 / static_cast<int>(sizeof(T));

template <int N, class T> __device__ __forceinline__ Vec<T, N> load(const T* from) {
  return simt::load_packets<Vec<T, N>>(from);
}
template <int N, class T> __device__ __forceinline__ void store(T* to, const Vec<T, N>& values) {
  simt::store_packets(to, values);
}

/// Element i of a vector, in the type it is computed in. bfloat16 is taken from the packed words: as 16-bit
/// elements, ptxas would spread them over twice the registers.
template <class T, int N> __device__ __forceinline__ Accumulate<T> widen(const Vec<T, N>& vector, int i) {
  if constexpr (std::is_same_v<T, BFloat16> && N % 2 == 0) {
    const auto words = std::bit_cast<Vec<std::uint32_t, N / 2>>(vector);
    return std::bit_cast<float>(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
  } else {
    return Accumulate<T>(vector[i]);
  }
}

/// The same one element at a time, where not kAligned.
template <bool kAligned, int N, class T> __device__ __forceinline__ Vec<T, N> load_vector(const T* from) {
  if constexpr (kAligned) {
    return load<N>(from);
  } else {
    Vec<T, N> values;
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = from[i];
    return values;
  }
}
template <bool kAligned, int N, class T>
__device__ __forceinline__ void store_vector(T* to, const Vec<T, N>& values) {
  if constexpr (kAligned) {
    store<N>(to, values);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = values[i];
  }
}

/// Whether every pointer may be accessed N elements of T at a time.
template <int N, class... T> bool aligned(const T*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % (sizeof(T) * N) == 0) && ...);
}

/// Calls f.operator()<V>() with vector_width().
template <class T, class F, class... P>
void dispatch_width(std::int64_t row, const F& f, const P*... pointers) {
  if constexpr (sizeof(T) < 8) {
    if (vector_width(sizeof(T), row, {Address(pointers)...}) > 1) return f.template operator()<kVec<T>>();
  }
  f.template operator()<1>();
}

}  // namespace athanor::cuda
