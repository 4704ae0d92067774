#pragma once

#include <cstdint>

// The inner loops of conv_direct.cpp, conv_pool.cpp, conv_scatter.cpp, conv_gradient.cpp and
// conv_depthwise.cpp: sums of products
// that stay in registers until complete. Tensors are f32, in the layouts given here, whose blocks of 16
// floats are one vector of AVX-512 or two of AVX2. Every sum has its taps in the same order, one fused
// multiply-add each, so the bits do not depend on the CPU.

namespace athanor::cpu::conv_tiles {

inline constexpr std::int64_t kLanes = 16;
inline constexpr int kMaxPixelChannels = 8;   ///< output channels of `pixel_sums`
inline constexpr int kMaxPooledChannels = 6;  ///< of `pooled_pixels`
inline constexpr int kMaxSpans = 3;

/// Adjacent pixels of one output row.
struct ChannelTile {
  const float* x;     ///< first tap of the first pixel
  const float* w;     ///< [rows, runs, run, block]
  std::int64_t step;  ///< between adjacent pixels, in floats
  std::int64_t rows, row_step, runs, run_step, run;
};
/// The code for a number of output channels and the length of an output row.
struct ChannelCode {
  std::int64_t block, pixels;                          ///< channels and pixels of one tile
  void (*sums)(const ChannelTile& tile, float* sums);  ///< leaves [pixel][channel]
};

/// Spans of 16 adjacent pixels in a planar frame, C x H x W.
struct PixelTile {
  const float* frame;
  const std::int64_t* spans;  ///< offset of each span's first tap
  const float* w;             ///< [c, r, s, channels]
  std::int64_t c, plane, r, row_step, s, step;
};

/// 2 x 2 max pooling and ReLU of adjacent pixels, 16 channels. A filter covers `run` floats of each of `rows`
/// rows.
struct PooledChannels {
  const float* x;          ///< first tap of the first pixel
  std::int64_t row, step;  ///< from a pixel to the one below, and to the next
  std::int64_t rows, run;
  const float *w, *bias;  ///< [rows, run, 16]; bias may be null
  std::int64_t channels;  ///< up to 16 that are written
  float* y;
  std::int64_t next;  ///< from a pixel of y to the next
};

/// The same for 16 pixels of all channels, in a planar frame whose rows are their even columns, then their
/// odd ones.
struct PooledPixels {
  const float* x;                   ///< the first even column under the first pixel
  std::int64_t c, plane, half_row;  ///< planes; from a plane to the next; from even to odd columns
  std::int64_t r, s;
  const float *w, *bias;  ///< [c, r, s, channels]; bias may be null
  std::int64_t pixels;    ///< up to 16 that are written, as [pixel][channel]
  float* y;
};

/// The shares of a row of output pixels in the gradient of their inputs, for some rows of the filter, each
/// `vectors` of 16 floats.
struct Patches {
  const float* dy;            ///< [pixels, k]
  float* to;                  ///< the first pixel's first tap in the frame
  std::int64_t pixels, step;  ///< step: floats of the frame from a pixel to the next
  const float* w;             ///< [k, rows * vectors * 16]
  std::int64_t k, row_step, vectors;
  std::int64_t last;  ///< floats of a row's last vector
};

/// Adjacent taps of one or two rows of a filter, whose gradients are sums over the pixels of an image.
struct WeightTile {
  const float* x;                           ///< under the first pixel's first tap
  std::int64_t filter_row;                  ///< floats of x from a row of the filter to the next
  std::int64_t rows, row, columns, column;  ///< output pixels, and floats of x between them
  const float* dy;                          ///< [rows, columns, channels], of which a block is read
  std::int64_t channels;
  float* sums;            ///< [tap][block], to which is added
  std::int64_t sums_row;  ///< floats from a row of the filter to the next
};
/// The code for the length of a row of the filter, in floats, and a number of output channels.
struct WeightCode {
  std::int64_t block, rows, taps;                  ///< of the largest tile
  void (*const* sums[2])(const WeightTile& tile);  ///< by rows - 1, then by taps - 1
};

/// Some taps of some rows of the filters of 16 channels, each with a filter of its own, whose gradients are
/// sums over the pixels of an image. Channels come last everywhere.
struct DepthwiseTile {
  const float* x;                           ///< under the first pixel's first tap
  std::int64_t filter_row;                  ///< floats of x from a row of the filter to the next
  std::int64_t rows, row, columns, column;  ///< output pixels, and floats of x between them
  const float* dy;                          ///< [rows, columns, 16]
  float* sums;                              ///< [tap][16], to which is added
  std::int64_t sums_row;                    ///< floats from a row of the filter to the next
};
/// The code for a length of a row of the filter.
struct DepthwiseCode {
  std::int64_t rows, taps;                            ///< of the largest tile
  void (*const* sums[3])(const DepthwiseTile& tile);  ///< by rows - 1, then by taps - 1
};

/// The loops for one instruction set.
struct Code {
  const char* isa;
  ChannelCode (*channels)(std::int64_t channels, std::int64_t row);
  int spans;  ///< of one PixelTile, at most kMaxSpans
  /// By output channels - 1. Leaves [span][channel][pixel].
  void (*pixel_sums[kMaxPixelChannels])(const PixelTile& tile, float* sums);
  /// By channels - 1. Transposes 16 pixels from [channel][pixel] to [pixel][channel] and writes the first
  /// `count` floats, plus bias, in the layout of `from`, or null.
  void (*interleave[kMaxPixelChannels])(const float* from, const float* bias, std::int64_t count, float* to);
  /// Pooled pixels of the longest tile, and the code for each length - 1.
  int max_pooled;
  void (*const* pooled_channels)(const PooledChannels& tile);
  void (*pooled_pixels[kMaxPooledChannels])(const PooledPixels& tile);  ///< by channels - 1
  /// Vectors of the largest patch, and the code for each number - 1. Adds the patches to the frame.
  int max_patch;
  void (*const* add_patches)(const Patches& patches);
  WeightCode (*weights)(std::int64_t row, std::int64_t channels);
  DepthwiseCode (*depthwise)(std::int64_t row);
};

/// That of this CPU. Only if has_avx2().
const Code& code();

// By instruction set: conv_tiles_avx2.cpp and conv_tiles_avx512.cpp.
namespace avx2 {
const Code& code();
}
namespace avx512 {
const Code& code();
}

}  // namespace athanor::cpu::conv_tiles
