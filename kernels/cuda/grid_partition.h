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
