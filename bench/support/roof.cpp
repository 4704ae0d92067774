#include "bench/support/roof.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "tensor/tensor.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace athanor::bench {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Units of work per second of f(), which does `work` each time: the best of many samples, since a roof is
// what the machine can do undisturbed.
template <class F> double best_rate(double work, const F& f) {
  f();
  const auto start = std::chrono::steady_clock::now();
  double best = 0;
  for (int batch = 1; seconds_since(start) < 0.1;) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < batch; ++i) f();
    const double elapsed = seconds_since(begin);
    if (elapsed < 20e-6) {
      batch *= 2;
    } else {
      best = std::max(best, work * batch / elapsed);
    }
  }
  return best;
}

double measure_copy(std::int64_t bytes) {
  CpuContext& context = cpu_context();
  const std::int64_t n = std::max<std::int64_t>(bytes / 2 / 4, 1024);
  // Where tensors live, too: in huge pages, where there are any, which is worth a factor of two to some
  // machines.
  const Tensor source = Tensor::empty({n}), target = Tensor::empty({n});
  float *const from = source.data<float>(), *const to = target.data<float>();
  std::fill_n(from, n, 1.0f);
  std::fill_n(to, n, 0.0f);
  const auto copy = [&](auto&& piece) {
    return best_rate(8.0 * static_cast<double>(n), [&] {
      cpu::parallel_for(context, n, cpu::kGrain,
                        [&](std::int64_t begin, std::int64_t end) { piece(begin, end - begin); });
    });
  };
  // memcpy goes round the cache for large blocks, which some machines like better than others.
  const double plain = copy([&](std::int64_t at, std::int64_t count) {
    const float* in = from + at;
    float* out = to + at;
    cpu::vectorize([&] {
      for (std::int64_t i = 0; i < count; ++i) out[i] = in[i] + 0.0f;
    });
  });
  const double library = copy([&](std::int64_t at, std::int64_t count) {
    std::memcpy(to + at, from + at, static_cast<std::size_t>(count) * 4);
  });
  double best = std::max(plain, library);
#if defined(__SSE2__)
  // Stores past the cache spare the read of each line that is about to be overwritten; memcpy does so only
  // for blocks larger than a part of the last cache, which may be half a gigabyte.
  best = std::max(best, copy([&](std::int64_t at, std::int64_t count) {
                    const float* in = from + at;
                    float* out = to + at;
                    std::int64_t i = 0;
                    for (; i < count && reinterpret_cast<std::uintptr_t>(out + i) % 64 != 0; ++i)
                      out[i] = in[i];
                    for (; i + 16 <= count; i += 16) {
                      for (int k = 0; k < 16; k += 4) _mm_stream_ps(out + i + k, _mm_loadu_ps(in + i + k));
                    }
                    for (; i < count; ++i) out[i] = in[i];
                    _mm_sfence();
                  }));
#endif
  return best;
}

// Enough independent chains to hide the latency of an FMA on two ports.
constexpr int kChains = 10;
constexpr int kLanes = 16;
constexpr int kSteps = 20000;

void fma_chains(float* values) {
  cpu::vectorize([=] {
    float acc[kChains][kLanes];
    std::memcpy(acc, values, sizeof acc);
    for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
      for (auto& chain : acc) {
#pragma GCC unroll 16
        for (float& lane : chain) lane = std::fma(lane, 0.999f, 0.001f);
      }
    }
    std::memcpy(values, acc, sizeof acc);
  });
}

double measure_fma() {
  CpuContext& context = cpu_context();
  const std::int64_t threads = context.threads();
  std::vector<float> values(static_cast<std::size_t>(threads * kChains * kLanes), 0.5f);
  const double flops = 2.0 * kChains * kLanes * kSteps * static_cast<double>(threads);
  return best_rate(flops, [&] {
    cpu::parallel_for(context, threads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) fma_chains(values.data() + i * kChains * kLanes);
    });
  });
}

#if defined(__x86_64__) && defined(__GNUC__)

ATH_AVX512_VNNI void dot_chains_avx512(int* values) {
  __m512i sums[kChains];
  for (auto& sum : sums) sum = _mm512_set1_epi32(*values);
  const __m512i x = _mm512_set1_epi32(*values), w = _mm512_set1_epi32(*values + 1);
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
    for (auto& sum : sums) sum = _mm512_dpbusd_epi32(sum, x, w);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  int lanes[kLanes];
  _mm512_storeu_si512(lanes, sums[0]);
  *values = lanes[0];
}

ATH_AVX2 void dot_chains_avx2(int* values) {
  __m256i sums[kChains];
  for (auto& sum : sums) sum = _mm256_set1_epi32(*values);
  const __m256i x = _mm256_set1_epi32(*values), w = _mm256_set1_epi32(*values + 1);
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
    for (auto& sum : sums) {
      __m256i factor = x;
      asm volatile("" : "+x"(factor));  // a product for each sum
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(factor, w));
    }
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  *values = _mm256_extract_epi32(sums[0], 0);
}

double measure_int8() {
  CpuContext& context = cpu_context();
  if (!cpu::has_avx2()) return 0;
  const bool wide = cpu::has_avx512_vnni();
  const std::int64_t threads = context.threads();
  const double operations = (wide ? 2.0 * 64 : 2.0 * 16) * kChains * kSteps * static_cast<double>(threads);
  return best_rate(operations, [&] {
    cpu::parallel_for(context, threads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        volatile int seed = static_cast<int>(i);
        int value = seed;
        (wide ? dot_chains_avx512 : dot_chains_avx2)(&value);
        seed = value;
      }
    });
  });
}

#else

double measure_int8() {
  return 0;
}

#endif

}  // namespace

double copy_roof(double bytes) {
  static std::map<int, double> measured;
  const int power = std::clamp(static_cast<int>(std::lround(std::log2(std::max(bytes, 1.0)))), 14, 29);
  double& roof = measured[power];
  if (roof == 0) roof = measure_copy(std::int64_t{1} << power);
  return roof;
}

double fma_peak() {
  static const double peak = measure_fma();
  return peak;
}

double int8_peak() {
  static const double peak = measure_int8();
  return peak;
}

}  // namespace athanor::bench
