// Figures that are measured: the best of many short turns, all cases in each round, so that a busy machine
// does to one what it does to the others.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "athanor.h"
#include "examples/book_figures/figures.h"
#include "kernels/cpu/isa.h"
#include "kernels/implementations.h"

namespace athanor::examples {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Case {
  std::string name;
  double flops = 0, bytes = 0;
  std::function<void()> work;
  double best = 1e9;
};

void measure(std::vector<Case>& cases, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (Case& one : cases) {
      // A turn lasts a millisecond or more: the clock's own cost must not count.
      const int repeats = std::clamp(static_cast<int>(1e-3 / std::max(one.best, 1e-7)), 1, 10000);
      one.best = std::min(one.best, seconds([&] {
                                      for (int i = 0; i < repeats; ++i) one.work();
                                    }) / repeats);
    }
  }
}

// y [n, n] = a b, all dense.
void naive(const float* a, const float* b, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      y[i * n + j] = sum;
    }
  }
}

// The same sums; the inner loop runs along rows of b and y.
void reordered(const float* a, const float* b, float* y, std::int64_t n) {
  std::fill_n(y, n * n, 0.0f);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t k = 0; k < n; ++k) {
      for (std::int64_t j = 0; j < n; ++j) y[i * n + j] += a[i * n + k] * b[k * n + j];
    }
  }
}

// The same product in blocks of kRows x 32 results, whose sums stay in registers: rows of a from `a` on, for
// all columns of b. Multiplies and adds in one instruction, as libraries do, so it rounds once where the
// others round twice.
template <int kRows> void blocks_of_rows(const float* a, const float* b, float* y, std::int64_t n) {
  constexpr std::int64_t kColumns = 32;
  for (std::int64_t j = 0; j < n; j += kColumns) {
    float sums[kRows][kColumns] = {};
    for (std::int64_t k = 0; k < n; ++k) {
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t column = 0; column < kColumns; ++column)
          sums[row][column] = std::fma(a[row * n + k], b[k * n + j + column], sums[row][column]);
      }
    }
    for (std::int64_t row = 0; row < kRows; ++row) std::copy_n(sums[row], kColumns, y + row * n + j);
  }
}
// n must be a multiple of 32.
void blocked(const float* a, const float* b, float* y, std::int64_t n) {
  cpu::vectorize([=] {
    std::int64_t i = 0;
    for (; i + 6 <= n; i += 6) blocks_of_rows<6>(a + i * n, b, y + i * n, n);
    for (; i < n; i += 2) blocks_of_rows<2>(a + i * n, b, y + i * n, n);
  });
}

// Multiply-adds on registers only: what the core could do if no number had to be fetched.
template <int kLanes> float multiply_adds_in(std::int64_t count) {
  float sum = 0;
  cpu::vectorize([&] {
    float value[kLanes];
    for (int i = 0; i < kLanes; ++i) value[i] = static_cast<float>(i);
    for (std::int64_t done = 0; done < count; done += kLanes) {
      for (float& lane : value) lane = std::fma(lane, 0.999f, 1e-3f);
    }
    for (const float lane : value) sum += lane;
  });
  return sum;
}
// In twelve registers: of 16 floats with AVX-512, else of 8.
float multiply_adds(std::int64_t count) {
  return cpu::has_avx512() ? multiply_adds_in<12 * 16>(count) : multiply_adds_in<12 * 8>(count);
}

// [N, H, W, C] -> [N H W, 3 3 C] with zeros around: each row is what one result of a 3x3 filter needs.
Tensor im2col(const Tensor& x) {
  const std::int64_t n = x.dim(0), h = x.dim(1), w = x.dim(2), c = x.dim(3);
  const Tensor rows = Tensor::zeros({n * h * w, 9 * c});
  const float* from = x.data<float>();
  float* to = rows.data<float>();
  for (std::int64_t row = 0; row < n * h * w; ++row) {
    const std::int64_t y0 = row / w % h, x0 = row % w, image = row / (h * w);
    for (std::int64_t r = 0; r < 3; ++r) {
      for (std::int64_t s = 0; s < 3; ++s, to += c) {
        const std::int64_t at_y = y0 + r - 1, at_x = x0 + s - 1;
        if (at_y < 0 || at_y >= h || at_x < 0 || at_x >= w) continue;
        std::copy_n(from + ((image * h + at_y) * w + at_x) * c, c, to);
      }
    }
  }
  return rows;
}

Tensor seven_loops(const Tensor& x, const Tensor& w) {
  const std::int64_t n = x.dim(0), h = x.dim(1), width = x.dim(2), c = x.dim(3), k = w.dim(0);
  const Tensor y = Tensor::zeros({n, h, width, k});
  const float *in = x.data<float>(), *filter = w.data<float>();
  float* out = y.data<float>();
  for (std::int64_t image = 0; image < n; ++image)
    for (std::int64_t p = 0; p < h; ++p)
      for (std::int64_t q = 0; q < width; ++q)
        for (std::int64_t f = 0; f < k; ++f, ++out)
          for (std::int64_t r = std::max<std::int64_t>(0, 1 - p); r < std::min<std::int64_t>(3, h + 1 - p);
               ++r)
            for (std::int64_t s = std::max<std::int64_t>(0, 1 - q);
                 s < std::min<std::int64_t>(3, width + 1 - q); ++s)
              for (std::int64_t i = 0; i < c; ++i)
                *out += in[((image * h + p + r - 1) * width + q + s - 1) * c + i] *
                        filter[((f * 3 + r) * 3 + s) * c + i];
  return y;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, std::abs(x[i] - y[i]));
    scale = std::max(scale, std::abs(x[i]));
  }
  return worst / scale;
}

}  // namespace

nlohmann::json roof() {
  std::vector<Case> cases;
  float sink = 0;
  cases.push_back({"multiply-adds", 2.0 * 1920000, 0, [&sink] { sink += multiply_adds(1920000); }});
  const Tensor from = Tensor::zeros({32 << 20}), to = Tensor::zeros({32 << 20});
  cases.push_back(
      {"copy", 0, 2.0 * (128 << 20), [=] { std::copy_n(from.data<float>(), 32 << 20, to.data<float>()); }});
  for (const std::int64_t n : {16, 32, 64, 128, 256, 512}) {
    const Tensor a = randn({n, n}, {.seed = 1}), b = randn({n, n}, {.seed = 2}), y = empty({n, n});
    const double size = static_cast<double>(n), flops = 2 * size * size * size, bytes = 12 * size * size;
    const float *pa = a.data<float>(), *pb = b.data<float>();
    float* py = y.data<float>();
    cases.push_back(
        {fmt::format("naive {}", n), flops, bytes, [a, b, y, pa, pb, py, n] { naive(pa, pb, py, n); }});
    cases.push_back({fmt::format("reordered {}", n), flops, bytes,
                     [a, b, y, pa, pb, py, n] { reordered(pa, pb, py, n); }});
    if (n >= 32)
      cases.push_back(
          {fmt::format("blocked {}", n), flops, bytes, [a, b, y, pa, pb, py, n] { blocked(pa, pb, py, n); }});
    cases.push_back({fmt::format("library {}", n), flops, bytes, [a, b] {
                       const NoGrad off;
                       matmul(a, b);
                     }});
    cases.push_back({fmt::format("matrix times vector {}", n), 2 * size * size, 4 * size * (size + 2),
                     [a, x = randn({n}, {.seed = 3})] {
                       const NoGrad off;
                       matmul(a, x);
                     }});
  }
  measure(cases, 30);
  nlohmann::json out{{"cpu", cpu_implementations()}, {"sink", std::isfinite(sink)}};
  for (const Case& one : cases)
    out["rows"].push_back({{"name", one.name},
                           {"gflops", one.flops / one.best / 1e9},
                           {"gbs", one.bytes / one.best / 1e9},
                           {"intensity", one.bytes > 0 ? one.flops / one.bytes : 0}});
  return out;
}

nlohmann::json convolutions() {
  const NoGrad off;
  const Tensor x = randn({8, 32, 32, 64}, {.seed = 1}), w = randn({64, 3, 3, 64}, {.seed = 2});
  const Tensor flat = reshape(w, {64, 9 * 64});
  const auto with = [=](ConvImpl impl) { return conv2d(x, w, {}, {.same_padding = true, .impl = impl}); };
  const double flops = 2.0 * 8 * 32 * 32 * 64 * 9 * 64;
  std::vector<Case> cases{
      {"seven loops", flops, 0, [=] { seven_loops(x, w); }},
      {"im2col", flops, 0, [=] { im2col(x); }},
      {"im2col and a product", flops, 0, [=] { linear(im2col(x), flat); }},
      {"oneDNN", flops, 0, [=] { with(ConvImpl::vendor); }},
      {"Winograd", flops, 0, [=] { with(ConvImpl::winograd); }},
  };
  measure(cases, 15);
  const Tensor exact = seven_loops(x, w);
  nlohmann::json out{
      {"cpu", cpu_implementations()},
      {"flops", flops},
      {"rows of im2col, MB", static_cast<double>(im2col(x).bytes()) / 1e6},
      {"image, MB", static_cast<double>(x.bytes()) / 1e6},
      {"Winograd's error", largest_difference(exact, with(ConvImpl::winograd))},
      {"oneDNN's error", largest_difference(exact, with(ConvImpl::vendor))},
      {"im2col's error", largest_difference(exact, reshape(linear(im2col(x), flat), exact.shape()))}};
  for (const Case& one : cases)
    out["rows"].push_back({{"name", one.name}, {"ms", one.best * 1e3}, {"gflops", flops / one.best / 1e9}});
  return out;
}

nlohmann::json same_twice() {
  const NoGrad off;
  const Tensor x = randn({16, 32, 32, 16}, {.seed = 1}), w = randn({16, 3, 3, 16}, {.seed = 2});
  const auto turn = [&] { return seconds([&] { conv2d(x, w, {}, {.same_padding = true}); }); };
  for (int i = 0; i < 50; ++i) turn();
  constexpr int kTrials = 200, kTurns = 20;
  nlohmann::json blocks, turns;
  const auto median = [](std::vector<double> all) {
    std::nth_element(all.begin(), all.begin() + kTurns / 2, all.end());
    return all[kTurns / 2];
  };
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> a, b;
    for (int i = 0; i < kTurns; ++i) a.push_back(turn());
    for (int i = 0; i < kTurns; ++i) b.push_back(turn());
    blocks.push_back(median(a) / median(b));
    a.clear(), b.clear();
    for (int i = 0; i < kTurns; ++i) {
      // Who is first alternates, too.
      (i % 2 ? b : a).push_back(turn());
      (i % 2 ? a : b).push_back(turn());
    }
    turns.push_back(median(a) / median(b));
  }
  return {{"cpu", cpu_implementations()}, {"in blocks", blocks}, {"in turns", turns}};
}

}  // namespace athanor::examples
