#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

// How work is divided among the blocks of a grid. The order of a sum decides its bits, so nothing here asks
// which GPU it is: the work is divided for a large one, by sizes alone.

namespace athanor::cuda {

/// Multiprocessors of the GPU that work is divided for.
inline constexpr std::int64_t kMultiprocessors = 128;

inline constexpr int kColumnThreads = 256;

/// How [rows, channels] is cut: `1 << shift` threads side by side with V channels each, the others of a block
/// below them.
struct ColumnCut {
  std::int64_t rows, channels;
  int shift = 0;
  std::int64_t tiles = 0;   ///< of channels
  std::int64_t splits = 0;  ///< of rows
  std::int64_t share = 0;   ///< rows of a split

  /// `most_blocks`: a few waves of any device, so that the last one hardly shows. `rounds`: rows a thread
  /// takes, at least. 1 << `most_shift`: threads side by side, at most.
  ColumnCut(std::int64_t all_rows, std::int64_t all_channels, int width, std::int64_t most_blocks = 1024,
            std::int64_t rounds = 8, int threads = kColumnThreads, int most_shift = 5)
      : rows(all_rows), channels(all_channels) {
    const std::int64_t across = (channels + width - 1) / width;
    while (shift < most_shift && (1 << shift) < across) ++shift;
    tiles = (across + (1 << shift) - 1) >> shift;
    if (tiles == 0) return;
    const std::int64_t below = threads >> shift, most = std::max<std::int64_t>(most_blocks / tiles, 1);
    share = std::max((rows + most - 1) / most, below * rounds);
    share = (share + below - 1) / below * below;
    splits = (rows + share - 1) / share;
  }
  unsigned blocks() const { return static_cast<unsigned>(tiles * splits); }
  std::size_t partial_elements() const { return static_cast<std::size_t>(2 * splits * channels); }
};

/// Batch norm: a block has half a multiprocessor, and 128 bytes of a row, which is one line of the cache.
inline constexpr int kNormThreads = 512;
/// How a pass of batch norm that sums is cut. Every block of the next pass adds up the partial sums of its
/// channels: of a wave of blocks, 128 KB at most.
inline ColumnCut norm_cut(std::int64_t rows, std::int64_t channels, int width) {
  return {rows, channels, width, 2 * kMultiprocessors, 8, kNormThreads, width == 1 ? 5 : 3};
}

/// Into how many pieces the depth of a product is cut, whose result has `tiles` tiles and `y_size` sums of
/// `sum_bytes`: enough blocks for every multiprocessor of a large GPU to hide waiting, in pieces that are not
/// all overhead, and buffers of at most 256 MiB.
inline std::int64_t split_pieces(std::int64_t tiles, std::int64_t threads, std::int64_t steps,
                                 std::int64_t y_size, std::int64_t sum_bytes) {
  const std::int64_t wanted = kMultiprocessors * (512 / threads), longest = steps / 8,
                     room = (std::int64_t{1} << 28) / sum_bytes / std::max<std::int64_t>(y_size, 1);
  return std::clamp<std::int64_t>(std::min({wanted / tiles, longest, room}), 1, 1024);
}

/// Whether our own product y [m, n] of half types, k deep, can also sum its columns: whole packets, and
/// enough tiles that its depth is not cut.
inline bool product_sums_columns(std::int64_t m, std::int64_t n, std::int64_t k) {
  const bool narrow = n <= 16;
  const std::int64_t tiles = (m + 63) / 64 * (narrow ? 1 : (n + 63) / 64);
  return n % 8 == 0 && split_pieces(tiles, narrow ? 32 : 128, (k + 31) / 32, m * n, 4) == 1;
}

/// Elements that one launch of a convolution counts: indices are 32-bit numbers in its kernels.
inline constexpr std::int64_t kMaxCounted = std::int64_t{1} << 30;

/// More images go in several rounds: calls f(first image, images), once at least, with `most` elements at
/// most in a round where an image has `elements`, or one image that has more.
template <class F>
void for_images(std::int64_t images, std::int64_t elements, std::int64_t most, const F& f) {
  const std::int64_t step = std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, elements));
  std::int64_t first = 0;
  do {
    f(first, std::min(step, images - first));
    first += step;
  } while (first < images);
}

}  // namespace athanor::cuda
