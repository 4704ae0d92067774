// How many FLOPs a second one core does: as many as it can, and in products of n x n matrices. Each number is
// the best of several turns, because whatever else runs on the machine only takes time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "fast.h"

namespace {

using Clock = std::chrono::steady_clock;
using Vector = float __attribute__((vector_size(32)));
using Floats = std::vector<float>;

// The best of many turns, a quarter of a second in all, in GFLOP/s.
double gflops(double flops, const std::function<void()>& work) {
  double best = 0;
  for (const auto begin = Clock::now(); Clock::now() - begin < std::chrono::milliseconds(250);) {
    const auto turn = Clock::now();
    work();
    best = std::max(best, flops / std::chrono::duration<double>(Clock::now() - turn).count() * 1e-9);
  }
  return best;
}

// Multiply-adds on twelve registers, none of which waits for another. Nothing is read from memory.
constexpr int kRegisters = 12, kTurns = 100'000;
float multiply_adds(float factor, float addend) {
  Vector sums[kRegisters] = {};
  for (int turn = 0; turn < kTurns; ++turn)
#pragma GCC unroll 12
    for (int i = 0; i < kRegisters; ++i) sums[i] = sums[i] * factor + addend;
  Vector all = {};
  for (const Vector& sum : sums) all += sum;
  return all[0];
}

void naive(std::int64_t n, const float* a, const float* b, float* c) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
}

void reordered(std::int64_t n, const float* a, const float* b, float* c) {
  std::fill_n(c, n * n, 0.0f);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t k = 0; k < n; ++k)
      for (std::int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
}

volatile float kept;  // a result that is never used would not be computed

}  // namespace

int main() {
  const double roof = gflops(2.0 * 8 * kRegisters * kTurns, [] { kept = multiply_adds(0.5f, 1); });
  std::printf("roof, 12 registers of 8 floats  %7.1f GFLOP/s\n", roof);

  using namespace engine;
  const Floats left(kTileRows * kBlockDepth, 1), right(kTileColumns * kBlockDepth, 1);
  Floats tile(kTileRows * kTileColumns);
  const double kernel = gflops(2.0 * kTileRows * kTileColumns * kBlockDepth * 100, [&] {
    for (int i = 0; i < 100; ++i)
      micro_kernel(kBlockDepth, left.data(), right.data(), tile.data(), kTileColumns);
    kept = tile[0];
  });
  std::printf("micro_kernel, panels in a cache %7.1f GFLOP/s, %3.0f %% of the roof\n\n", kernel,
              100 * kernel / roof);

  std::printf("    n    naive  reordered  fast_matmul   of the roof\n");
  for (const std::int64_t n : {32, 64, 128, 256, 512, 1024}) {
    const Floats a(static_cast<std::size_t>(n * n), 1), b(a);
    Floats c(a.size());
    const double flops = 2.0 * static_cast<double>(n * n * n);
    const double first = gflops(flops, [&] { naive(n, a.data(), b.data(), c.data()); });
    const double second = gflops(flops, [&] { reordered(n, a.data(), b.data(), c.data()); });
    const double third = gflops(flops, [&] {
      std::fill(c.begin(), c.end(), 0.0f);
      fast_matmul({a.data(), n, n, n, 1}, {b.data(), n, n, n, 1}, c.data(), n);
    });
    kept = c[0];
    std::printf("%5d %8.2f %10.1f %12.1f %11.0f %%\n", static_cast<int>(n), first, second, third,
                100 * third / roof);
  }
}
