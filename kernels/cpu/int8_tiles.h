#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/int8.h"

// The inner loops of int8_tiles.cpp: products of u8 pixels and i8 weights, summed in i32 in registers until
// complete, then rounded. Both factors come in words of 4 bytes: 4 values of x as they are, or 2 widened to
// i16, where the CPU has no product of bytes that is exact. A word of x meets one word of each of 16
// channels.

namespace athanor::cpu::int8_tiles {

inline constexpr std::int64_t kLanes = 16;  ///< channels of a block, each with a word

/// What becomes of the sums of some channels. bias and multiplier have an element for each channel of the
/// blocks.
struct Finish {
  const std::int32_t* bias;
  const float* multiplier;
  std::int64_t channels;  ///< that are written
  std::int64_t next;      ///< elements of y and of the residual from a pixel to the next
  bool rounds;            ///< y is u8, else f32
  kernels::Rounding rounding;
  float residual_scale;
  std::int32_t residual_zero;
};

/// Adjacent pixels of one output row.
struct Run {
  const std::byte* x;            ///< first tap of the first pixel
  void* y;                       ///< the first pixel's first channel
  const std::uint8_t* residual;  ///< the same of the residual, or null
  std::int64_t first;            ///< pixels before it are not written
};

/// Two runs, of as many pixels each, times some channels. Distances are in bytes.
struct Tile {
  Run run[2];
  const std::byte* w;  ///< [rows, pieces, words, channel], a word each
  std::int64_t step;   ///< between adjacent pixels
  std::int64_t rows, row_step, pieces, piece_step, words;
  std::int64_t ahead;  ///< from a run to that of the next tile, which is fetched meanwhile
  const Finish* finish;
};

/// The loops for one instruction set.
struct Code {
  std::int64_t bytes;                      ///< of a value of x and w: 1 or 2, so 4 or 2 are a word
  std::int64_t blocks;                     ///< of 16 channels in the largest tile
  std::int64_t pixels;                     ///< of the longest run
  void (*const* tiles)(const Tile& tile);  ///< by (blocks - 1) * Code::pixels + pixels - 1

  std::int64_t values() const { return 4 / bytes; }  ///< of a word
};

// By instruction set: int8_tiles_avx512.cpp, int8_tiles_avx2.cpp and int8_tiles_plain.cpp.
namespace avx512_vnni {
extern const Code kCode;
}
namespace avx2 {
extern const Code kCode;
}
namespace plain {
extern const Code kCode;
}

}  // namespace athanor::cpu::int8_tiles
