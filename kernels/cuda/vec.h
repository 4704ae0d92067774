#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.h"

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

#if defined(SIMT_RACE)
// In packets that are one number each: the compiler takes structs apart, and who looks on would see an access
// for each element where a GPU makes one.
namespace detail {
template <int bytes> struct PacketOf { using Type = Bits<bytes>; };
template <> struct PacketOf<16> { __extension__ using Type = unsigned __int128; };

template <class T, int N> struct Packets {
  static constexpr int kBytes = N * static_cast<int>(sizeof(T)), kEach = kBytes < 16 ? kBytes : 16;
  typedef typename PacketOf<kEach>::Type Packet __attribute__((may_alias));
  Packet packet[kBytes / kEach];
};
}  // namespace detail

template <int N, class T> inline Vec<T, N> load(const T* from) {
  using Packets = detail::Packets<T, N>;
  Packets all;
  for (auto& packet : all.packet) {
    packet = reinterpret_cast<const typename Packets::Packet*>(from)[&packet - all.packet];
    asm("" : "+r"(packet));
  }
  return std::bit_cast<Vec<T, N>>(all);
}
template <int N, class T> inline void store(T* to, const Vec<T, N>& values) {
  using Packets = detail::Packets<T, N>;
  const auto all = std::bit_cast<Packets>(values);
  for (auto& packet : all.packet)
    reinterpret_cast<typename Packets::Packet*>(to)[&packet - all.packet] = packet;
}
#else
template <int N, class T> __device__ __forceinline__ Vec<T, N> load(const T* from) {
  return *reinterpret_cast<const Vec<T, N>*>(from);
}
template <int N, class T> __device__ __forceinline__ void store(T* to, const Vec<T, N>& values) {
  *reinterpret_cast<Vec<T, N>*>(to) = values;
}
#endif

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

/// Calls f.operator()<V>() with the elements a thread moves at a time: 16 bytes' worth where every row of
/// every operand begins on that boundary. (f64 is there for checks: one element.)
template <class T, class F, class... P>
void dispatch_width(std::int64_t row, const F& f, const P*... pointers) {
  if constexpr (sizeof(T) < 8) {
    if (row % kVec<T> == 0 && aligned<kVec<T>>(pointers...)) return f.template operator()<kVec<T>>();
  }
  f.template operator()<1>();
}

}  // namespace athanor::cuda
