#include "kernels/random.h"

#include <cmath>

#include "kernels/convert.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/random_words.h"
#include "kernels/random_ops.h"

namespace athanor::kernels {
namespace {

using cpu::for_each_words;
using cpu::kWords;

}  // namespace

void random_uniform(CpuContext& context, RandomKey key, double low, double high, Out y) {
  dispatch_floating(y.dtype(), "rand", [&]<class T>() {
    using A = Accumulate<T>;
    const A base = static_cast<A>(low), width = static_cast<A>(high - low);
    const A top = static_cast<A>(largest_below<T>(high));
    T* out = y.data<T>();
    const auto draw = [&](std::int64_t first, const std::uint32_t* words, std::int64_t, std::int64_t n) {
      cpu::vectorize([&] {
        for (std::int64_t i = 0; i < n; ++i) {
          const T value = T(std::fma(A(athanor::random_uniform(words[i])), width, base));
          const A wide = A(value);
          out[first + i] = wide > top ? T(top) : value;
        }
      });
    };
    for_each_words(context, key, 0, y.numel(), draw);
  });
}

void random_normal(CpuContext& context, RandomKey key, double mean, double stddev, Out y) {
  dispatch_floating(y.dtype(), "randn", [&]<class T>() {
    using A = Accumulate<T>;
    const A centre = static_cast<A>(mean), width = static_cast<A>(stddev);
    T* out = y.data<T>();
    const auto draw = [&](std::int64_t first, const std::uint32_t* words, std::int64_t, std::int64_t n) {
      float normals[kWords];
      const std::int64_t pairs = (n + 1) / 2;
      cpu::vectorize([&] {
        for (std::int64_t i = 0; i < pairs; ++i) {
          const NormalPair pair = random_normals(words[2 * i], words[2 * i + 1]);
          normals[2 * i] = pair.first;
          normals[2 * i + 1] = pair.second;
        }
      });
      cpu::vectorize([&] {
        for (std::int64_t i = 0; i < n; ++i) out[first + i] = T(std::fma(A(normals[i]), width, centre));
      });
    };
    for_each_words(context, key, 0, y.numel(), draw);
  });
}

void random_integers(CpuContext& context, RandomKey key, std::int64_t low, std::int64_t high, Out y) {
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
