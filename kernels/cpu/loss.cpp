#include "kernels/loss.h"

#include <limits>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/math.h"
#include "kernels/scratch.h"

namespace athanor::kernels {
namespace {

using cpu::for_each_task;
using cpu::grain_of;

constexpr std::int64_t kExpGrain = 4096;  // exponentials worth a second thread

template <class A> void sum_rows(std::int64_t rows, const A* losses, double scale, const Tensor& y) {
  double total = 0;
  for (std::int64_t n = 0; n < rows; ++n) total += losses[n];
  *y.data<A>() = A(total * scale);
}

// Calls use(maximum, sum of exp(x - maximum)) of a row, compiled as in vectorize_if().
template <class T, class Use> void with_max_sum(const T* x, std::int64_t classes, const Use& use) {
  using A = Accumulate<T>;
  cpu::vectorize_if<cpu::kFastType<T>>([&] {
    const auto larger = [](A a, A b) { return a > b ? a : b; };
    const A max = cpu::reduce_lanes(
        classes, -std::numeric_limits<A>::infinity(), [&](std::int64_t c) { return A(x[c]); }, larger);
    use(max, cpu::sum_lanes<A>(classes, [&](std::int64_t c) { return math::exp(A(x[c]) - max); }));
  });
}

// The loss of one row of logits; writes maximum and reciprocal of the sum to stats.
template <class T, class A>
A cross_entropy_row(const T* x, std::int64_t classes, std::int64_t target, A smoothing, A* stats) {
  A loss{};
  with_max_sum(x, classes, [&](A max, A sum) {
    A shifted{};
    if (smoothing > A(0)) shifted = cpu::sum_lanes<A>(classes, [&](std::int64_t c) { return A(x[c]) - max; });
    loss = cross_entropy(max, sum, shifted, A(x[target]), A(classes), smoothing);
    stats[0] = max;
    stats[1] = A(1) / sum;
  });
  return loss;
}

constexpr std::int64_t kSharesAtOnce = 256;  // of a row, on the stack

// Calls f(first, count, shares) for a row's shares, in chunks.
template <class T, class F>
void for_each_shares(const TargetShares<T>& share, std::int64_t row, std::int64_t classes, const F& f) {
  using A = Accumulate<T>;
  A u[kSharesAtOnce];
  for (std::int64_t first = 0; first < classes; first += kSharesAtOnce) {
    const std::int64_t count = std::min(kSharesAtOnce, classes - first);
    const T* q = share.target ? share.target + row * classes + first : nullptr;
    for (std::int64_t c = 0; c < count; ++c) u[c] = share(q ? A(q[c]) : A(0), first + c);
    f(first, count, u);
  }
}

// The loss of one row; writes maximum, reciprocal of the sum, and sum of shares to stats.
template <class T, class A>
A soft_cross_entropy_row(const T* x, std::int64_t classes, const TargetShares<T>& shares, std::int64_t row,
                         A* stats) {
  A loss = 0, all = 0;
  with_max_sum(x, classes, [&](A max, A sum) {
    const A log_sum = math::log(sum);
    for_each_shares(shares, row, classes, [&](std::int64_t first, std::int64_t count, const A* u) {
      loss += cpu::sum_lanes<A>(
          count, [&](std::int64_t c) { return soft_cross_entropy(A(x[first + c]), max, log_sum, u[c]); });
      all += cpu::sum_lanes<A>(count, [&](std::int64_t c) { return u[c]; });
    });
    stats[0] = max;
    stats[1] = A(1) / sum;
    stats[2] = all;
  });
  return loss;
}

}  // namespace

void check_target(CpuContext&, const char* op, const Tensor& target, std::int64_t classes) {
  const std::int64_t* values = target.data<std::int64_t>();
  const std::int64_t n = target.numel(), step = n > 0 ? target.strides()[0] : 0;
  for (std::int64_t i = 0; i < n; ++i) {
    ATH_CHECK(values[i * step] >= 0 && values[i * step] < classes,
              "{}: target must be in [0, {}), but target[{}] is {}", op, classes, i, values[i * step]);
  }
}

void cross_entropy_forward(CpuContext& context, const Tensor& logits, const Tensor& target, double smoothing,
                           double scale, Out stats, Out losses, Out y) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
    const T* x = logits.data<T>();
    const std::int64_t* t = target.data<std::int64_t>();
    A* s = stats.data<A>();
    A* to = losses.data<A>();
    for_each_task<false>(context, rows, grain_of(classes, kExpGrain), [&](std::int64_t n) {
      to[n] = cross_entropy_row<T, A>(x + n * classes, classes, t[n], A(smoothing), s + 2 * n);
    });
    if (y.defined()) sum_rows(rows, to, scale, y);
  });
}

void cross_entropy_backward(CpuContext& context, const Tensor& logits, const Tensor& target,
                            const Tensor& stats, double smoothing, double scale, const Tensor& dy, Out dx) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
    const T* x = logits.data<T>();
    const std::int64_t* t = target.data<std::int64_t>();
    const A* s = stats.data<A>();
    T* out = dx.data<T>();
    const RowGradient<A> gradient(dy, scale);
    const A spread = A(smoothing / static_cast<double>(classes)), on = A(1 - smoothing);
    for_each_task<false>(context, rows, grain_of(classes, kExpGrain), [&](std::int64_t n) {
      const T* from = x + n * classes;
      T* to = out + n * classes;
      const A max = s[2 * n], inverse = s[2 * n + 1], g = gradient[n];
      cpu::vectorize_if<cpu::kFastType<T>>([&] {
        for (std::int64_t c = 0; c < classes; ++c)
          to[c] = T(g * cross_entropy_slope(A(from[c]), max, inverse, on, spread, false));
      });
      to[t[n]] = T(g * cross_entropy_slope(A(from[t[n]]), max, inverse, on, spread, true));
    });
  });
}

void soft_cross_entropy_forward(CpuContext& context, const Tensor& logits, const Tensor& target,
                                const Tensor& weight, double smoothing, Out stats, Out losses) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
    const TargetShares<T> shares(target, weight, smoothing, classes);
    const T* x = logits.data<T>();
    A* s = stats.data<A>();
    A* to = losses.data<A>();
    for_each_task<false>(context, rows, grain_of(classes, kExpGrain), [&](std::int64_t n) {
      to[n] = soft_cross_entropy_row<T, A>(x + n * classes, classes, shares, n, s + 3 * n);
    });
  });
}

void soft_cross_entropy_backward(CpuContext& context, const Tensor& logits, const Tensor& target,
                                 const Tensor& weight, double smoothing, const Tensor& stats,
                                 const Tensor& dy, Out dx) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
    const TargetShares<T> shares(target, weight, smoothing, classes);
    const T* x = logits.data<T>();
    const A* s = stats.data<A>();
    T* out = dx.data<T>();
    const RowGradient<A> gradient(dy, 1);
    for_each_task<false>(context, rows, grain_of(classes, kExpGrain), [&](std::int64_t n) {
      const T* from = x + n * classes;
      T* to = out + n * classes;
      const A max = s[3 * n], scale = s[3 * n + 1] * s[3 * n + 2], g = gradient[n];
      cpu::vectorize_if<cpu::kFastType<T>>([&] {
        for_each_shares(shares, n, classes, [&](std::int64_t first, std::int64_t count, const A* u) {
          for (std::int64_t c = 0; c < count; ++c)
            to[first + c] = T(g * soft_cross_entropy_slope(A(from[first + c]), max, scale, u[c]));
        });
      });
    });
  });
}

void split_ignored(CpuContext& context, const Tensor& target, std::int64_t ignored, Out classes, Out kept) {
  const std::int64_t* t = target.data<std::int64_t>();
  std::int64_t* label = classes.data<std::int64_t>();
  bool* is_kept = kept.data<bool>();
  for_each_task<false>(context, target.numel(), cpu::kGrain, [&](std::int64_t n) {
    is_kept[n] = t[n] != ignored;
    label[n] = is_kept[n] ? t[n] : 0;
  });
}

void nll_forward(CpuContext& context, const Tensor& log_probs, const Tensor& target, double scale, Out y) {
  dispatch_floating(log_probs.dtype(), "nll_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = log_probs.shape()[0], classes = log_probs.shape()[1];
    const T* x = log_probs.data<T>();
    const std::int64_t* t = target.data<std::int64_t>();
    const bool reduces = y.rank() == 0;
    const Scratch scratch = context.scratch(reduces ? static_cast<std::size_t>(rows) * sizeof(A) : 0);
    A* losses = reduces ? scratch.as<A>() : y.data<A>();
    for_each_task<false>(context, rows, cpu::kGrain,
                         [&](std::int64_t n) { losses[n] = -A(x[n * classes + t[n]]); });
    if (reduces) sum_rows(rows, losses, scale, y);
  });
}

void nll_backward(CpuContext& context, const Tensor& target, double scale, const Tensor& dy, Out dx) {
  dispatch_floating(dx.dtype(), "nll_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = dx.shape()[0], classes = dx.shape()[1];
    const std::int64_t* t = target.data<std::int64_t>();
    T* out = dx.data<T>();
    const RowGradient<A> gradient(dy, scale);
    for_each_task<false>(context, rows, grain_of(classes), [&](std::int64_t n) {
      T* row = out + n * classes;
      std::fill(row, row + classes, T(0.0f));
      row[t[n]] = T(-gradient[n]);
    });
  });
}

}  // namespace athanor::kernels
