#pragma once

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "tensor/philox.h"

namespace athanor::cpu {

inline constexpr std::int64_t kWords = 256;  ///< at once, so that the rounds vectorise across counters

/// Calls f(at, words, begin, end) for chunks of n elements, in parallel: element at + i, for i in [begin,
/// end), has words[i], of which there are at most kWords. Element 0 has word `start` of the key's stream;
/// begin is 0 if start is a multiple of 4.
template <class F>
void for_each_words(CpuContext& context, RandomKey key, std::int64_t start, std::int64_t n, const F& f) {
  const std::int64_t before = start % 4;  // words of the first block
  parallel_for(context, (before + n + 3) / 4, kGrain / 16, [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t words[kWords];
    for (std::int64_t first = begin; first < end; first += kWords / 4) {
      const std::int64_t count = std::min(kWords / 4, end - first), at = 4 * first - before;
      vectorize([&] {
        for (std::int64_t b = 0; b < count; ++b) {
          const PhiloxBlock block = philox(key, static_cast<std::uint64_t>(start / 4 + first + b));
          for (std::int64_t k = 0; k < 4; ++k) words[4 * b + k] = block.word[k];
        }
      });
      f(at, words, std::max<std::int64_t>(-at, 0), std::min(4 * count, n - at));
    }
  });
}

}  // namespace athanor::cpu
