#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

// Loads and stores of several elements by one instruction.

namespace simt {

#if defined(SIMT_RACE)
// In packets that are one number each: the compiler takes structs apart, and the race detector would see an
// access for each element where a GPU makes one.
namespace detail {

template <std::size_t bytes> struct PacketOf;
template <> struct PacketOf<1> { using Type = std::uint8_t; };
template <> struct PacketOf<2> { using Type = std::uint16_t; };
template <> struct PacketOf<4> { using Type = std::uint32_t; };
template <> struct PacketOf<8> { using Type = std::uint64_t; };
template <> struct PacketOf<16> { __extension__ using Type = unsigned __int128; };

template <std::size_t kBytes> struct Packets {
  static constexpr std::size_t kEach = kBytes < 16 ? kBytes : 16;
  typedef typename PacketOf<kEach>::Type Packet __attribute__((may_alias));
  Packet packet[kBytes / kEach];
};

}  // namespace detail
#endif

/// What lies at `from`, by one instruction for each 16 bytes. T is plain data of 1, 2, 4 or 8 bytes or a
/// multiple of 16, and aligned to as many, at most 16.
template <class T> __device__ __forceinline__ T load_packets(const void* from) {
#if defined(SIMT_RACE)
  using Packets = detail::Packets<sizeof(T)>;
  Packets all;
  for (auto& packet : all.packet) {
    packet = static_cast<const typename Packets::Packet*>(from)[&packet - all.packet];
    asm("" : "+r"(packet));
  }
  return std::bit_cast<T>(all);
#else
  return *static_cast<const T*>(from);
#endif
}

/// The reverse.
template <class T> __device__ __forceinline__ void store_packets(void* to, const T& value) {
#if defined(SIMT_RACE)
  using Packets = detail::Packets<sizeof(T)>;
  const auto all = std::bit_cast<Packets>(value);
  for (auto& packet : all.packet) static_cast<typename Packets::Packet*>(to)[&packet - all.packet] = packet;
#else
  *static_cast<T*>(to) = value;
#endif
}

}  // namespace simt
