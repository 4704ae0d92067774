#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace simt {

/// How 16-byte pieces of shared memory are permuted, so that those of a column of a tile lie in different
/// banks: by tensor maps when they bring a tile, and by wgmma when it reads one. The bits of an address that
/// number the piece in a line of `bytes` are turned (an exclusive or) by those that number the line of 128
/// bytes. The pattern repeats after 8 bytes() bytes, where a tile must begin.
enum class Swizzle : unsigned char { none, bytes_32, bytes_64, bytes_128 };

__host__ __device__ constexpr int bytes_of(Swizzle swizzle) {
  return swizzle == Swizzle::none ? 16 : 16 << static_cast<int>(swizzle);
}

/// Where the byte is that would be at `address` without.
__host__ __device__ constexpr std::uintptr_t swizzled(Swizzle swizzle, std::uintptr_t address) {
  const auto pieces = static_cast<std::uintptr_t>(bytes_of(swizzle) / 16 - 1);
  return address ^ ((address >> 7 & pieces) << 4);
}

}  // namespace simt
