#pragma once

#include <algorithm>
#include <cstdint>

// How work is divided among the blocks of a grid. The order of a sum decides its bits, so nothing here asks
// which GPU it is: the work is divided for a large one, by sizes alone.

namespace athanor::cuda {

/// Multiprocessors of the GPU that work is divided for.
inline constexpr std::int64_t kMultiprocessors = 128;

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
