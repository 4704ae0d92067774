#include "kernels/random.h"

#include <cmath>

#include "kernels/convert.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/random_ops.h"

namespace athanor::kernels {
namespace {

constexpr std::int64_t kBlocks = 64;  // per batch, so that the rounds vectorise across counters

// Calls f(first element, words, n) for chunks of [0, n): `words` are the stream's, from the first element on.
template <class F> void for_each_words(CpuContext& context, RandomKey key, std::int64_t n, const F& f) {
  const std::int64_t blocks = (n + 3) / 4;
  cpu::parallel_for(context, blocks, cpu::kGrain / 16, [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t words[4 * kBlocks];
    for (std::int64_t first = begin; first < end; first += kBlocks) {
      const std::int64_t count = std::min(kBlocks, end - first);
      cpu::vectorize([&] {
        for (std::int64_t b = 0; b < count; ++b) {
          const PhiloxBlock block = philox(key, static_cast<std::uint64_t>(first + b));
          for (std::int64_t k = 0; k < 4; ++k) words[4 * b + k] = block.word[k];
        }
      });
      f(4 * first, words, std::min(4 * count, n - 4 * first));
    }
  });
}

}  // namespace

template <>
void random_uniform(CpuContext& context, RandomKey key, double low, double high, const Tensor& y) {
  dispatch_floating(y.dtype(), "rand", [&]<class T>() {
    using A = Accumulate<T>;
    const A base = static_cast<A>(low), width = static_cast<A>(high - low);
    const A top = static_cast<A>(largest_below<T>(high));
    T* out = y.data<T>();
    for_each_words(context, key, y.numel(),
                   [&](std::int64_t first, const std::uint32_t* words, std::int64_t n) {
                     cpu::vectorize([&] {
                       for (std::int64_t i = 0; i < n; ++i) {
                         const T value = T(std::fma(A(athanor::random_uniform(words[i])), width, base));
                         const A wide = A(value);
                         out[first + i] = wide > top ? T(top) : value;
                       }
                     });
                   });
  });
}

template <>
void random_normal(CpuContext& context, RandomKey key, double mean, double stddev, const Tensor& y) {
  dispatch_floating(y.dtype(), "randn", [&]<class T>() {
    using A = Accumulate<T>;
    const A centre = static_cast<A>(mean), width = static_cast<A>(stddev);
    T* out = y.data<T>();
    for_each_words(context, key, y.numel(),
                   [&](std::int64_t first, const std::uint32_t* words, std::int64_t n) {
                     float normals[4 * kBlocks];
                     const std::int64_t pairs = (n + 1) / 2;
                     cpu::vectorize([&] {
                       for (std::int64_t i = 0; i < pairs; ++i) {
                         const NormalPair pair = random_normals(words[2 * i], words[2 * i + 1]);
                         normals[2 * i] = pair.first;
                         normals[2 * i + 1] = pair.second;
                       }
                     });
                     cpu::vectorize([&] {
                       for (std::int64_t i = 0; i < n; ++i)
                         out[first + i] = T(std::fma(A(normals[i]), width, centre));
                     });
                   });
  });
}

template <>
void random_integers(CpuContext& context, RandomKey key, std::int64_t low, std::int64_t high,
                     const Tensor& y) {
  const std::uint64_t bound = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  dispatch_any(y.dtype(), [&]<class T>() {
    T* out = y.data<T>();
    cpu::parallel_for(context, y.numel(), cpu::kGrain / 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint64_t drawn = random_below(philox_word64(key, static_cast<std::uint64_t>(i)), bound);
        out[i] = convert<T>(static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + drawn));
      }
    });
  });
}

}  // namespace athanor::kernels
