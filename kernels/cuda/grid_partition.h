#pragma once

#include <algorithm>
#include <cstdint>

// How work that ends in sums is cut for a GPU. The order of a sum decides its bits, so nothing here asks
// which GPU it is: cuts are made for a large one, and depend on sizes alone.

namespace athanor::cuda {

/// Multiprocessors of the GPU that cuts are made for.
inline constexpr std::int64_t kMultiprocessors = 128;

/// How the sums down the columns of [rows, packets] are shared between blocks of `threads`: each takes
/// `across` (a power of two) neighbouring packets and every so-many-th row.
struct ColumnPartition {
  int across = 1;
  unsigned groups, pieces;  ///< of the packets, of the rows: the grid

  ColumnPartition(std::int64_t rows, std::int64_t packets, int threads) {
    while (across < packets && across < 32) across *= 2;
    groups = static_cast<unsigned>((packets + across - 1) / across);
    // Sixteen rows a thread at least, and no more blocks than fill the GPU a few times.
    const std::int64_t share = threads / across * 16, wanted = (rows + share - 1) / share,
                       room = std::max<std::int64_t>(1, kMultiprocessors * 4 / groups);
    pieces = static_cast<unsigned>(std::clamp<std::int64_t>(wanted, 1, room));
  }
};

/// Elements that one launch of a convolution counts: indices are 32-bit numbers in its kernels.
inline constexpr std::int64_t kMostCounted = std::int64_t{1} << 30;

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
