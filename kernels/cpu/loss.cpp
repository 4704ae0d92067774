#include "kernels/loss.h"

#include <limits>

#include "kernels/cpu/iterate.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/math.h"

namespace athanor::kernels {
namespace {

using cpu::parallel_for;

constexpr std::int64_t kExpGrain = 4096;  // exponentials worth a second thread

std::int64_t row_grain(std::int64_t classes, std::int64_t grain) {
  return std::max<std::int64_t>(1, grain / std::max<std::int64_t>(classes, 1));
}

// A cursor over dy: one value for all rows, or one per row at any stride.
template <class A> struct RowGradient {
  const A* values;
  std::int64_t step;
  A scale;

  RowGradient(const Tensor& dy, double factor)
      : values(dy.data<A>()), step(dy.rank() == 0 ? 0 : dy.strides()[0]), scale(A(factor)) {}
  A operator[](std::int64_t row) const { return values[row * step] * scale; }
};

// Calls row(n) for each of N rows, in parallel; it returns the row's loss.
template <class A, class F>
void each_row(CpuContext& context, std::int64_t rows, std::int64_t grain, A* losses, const F& row) {
  parallel_for(context, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) losses[n] = row(n);
  });
}

template <class A> void sum_rows(std::int64_t rows, const A* losses, double scale, const Tensor& y) {
  double total = 0;
  for (std::int64_t n = 0; n < rows; ++n) total += losses[n];
  *y.data<A>() = A(total * scale);
}

// Stores the losses of rows in y [N], or their sum in y [].
template <class A, class F>
void reduce_rows(CpuContext& context, std::int64_t rows, std::int64_t grain, double scale, const Tensor& y,
                 const F& row) {
  if (y.rank() > 0) return each_row(context, rows, grain, y.data<A>(), row);
  const Scratch scratch = context.scratch(static_cast<std::size_t>(rows) * sizeof(A));
  each_row(context, rows, grain, scratch.as<A>(), row);
  sum_rows<A>(rows, scratch.as<A>(), scale, y);
}

// The loss of one row of logits; writes maximum and reciprocal of the sum to stats.
template <class T, class A>
A cross_entropy_row(const T* x, std::int64_t classes, std::int64_t target, A smoothing, A* stats) {
  A loss{};
  cpu::vectorize_if<cpu::kFastType<T>>([&] {
    const auto larger = [](A a, A b) { return a > b ? a : b; };
    const A max = cpu::reduce_lanes(
        classes, -std::numeric_limits<A>::infinity(), [&](std::int64_t c) { return A(x[c]); }, larger);
    const A sum = cpu::sum_lanes<A>(classes, [&](std::int64_t c) { return math::exp(A(x[c]) - max); });
    loss = math::log(sum) - (A(1) - smoothing) * (A(x[target]) - max);
    if (smoothing > A(0)) {
      const A shifted = cpu::sum_lanes<A>(classes, [&](std::int64_t c) { return A(x[c]) - max; });
      loss -= smoothing * (shifted / A(classes));
    }
    stats[0] = max;
    stats[1] = A(1) / sum;
  });
  return loss;
}

constexpr std::int64_t kSharesAtOnce = 256;  // of a row, on the stack

// The target distribution of a row: element c's share u_c.
template <class T> struct Shares {
  using A = Accumulate<T>;
  const T* target;  // null if shares differ only by weight
  const A* weight;  // null if all are 1
  A on, spread;

  Shares(const Tensor& q, const Tensor& w, double smoothing, std::int64_t classes)
      : target(q.defined() ? q.data<T>() : nullptr),
        weight(w.defined() ? w.data<A>() : nullptr),
        on(A(1 - smoothing)),
        spread(A(smoothing / static_cast<double>(classes))) {}
  // Calls f(first, count, shares) for a row's shares, in chunks.
  template <class F> void for_each(std::int64_t row, std::int64_t classes, const F& f) const {
    A u[kSharesAtOnce];
    for (std::int64_t first = 0; first < classes; first += kSharesAtOnce) {
      const std::int64_t count = std::min(kSharesAtOnce, classes - first);
      const T* q = target + (target ? row * classes + first : 0);
      const A* w = weight + (weight ? first : 0);
      for (std::int64_t c = 0; c < count; ++c) u[c] = q ? std::fma(on, A(q[c]), spread) : spread;
      for (std::int64_t c = 0; w && c < count; ++c) u[c] *= w[c];
      f(first, count, u);
    }
  }
};

// The loss of one row; writes maximum, reciprocal of the sum, and sum of shares to stats.
template <class T, class A>
A soft_cross_entropy_row(const T* x, std::int64_t classes, const Shares<T>& shares, std::int64_t row,
                         A* stats) {
  A loss = 0, all = 0;
  cpu::vectorize_if<cpu::kFastType<T>>([&] {
    const auto larger = [](A a, A b) { return a > b ? a : b; };
    const A max = cpu::reduce_lanes(
        classes, -std::numeric_limits<A>::infinity(), [&](std::int64_t c) { return A(x[c]); }, larger);
    const A sum = cpu::sum_lanes<A>(classes, [&](std::int64_t c) { return math::exp(A(x[c]) - max); });
    const A log_sum = math::log(sum);
    shares.for_each(row, classes, [&](std::int64_t first, std::int64_t count, const A* u) {
      loss += cpu::sum_lanes<A>(count,
                                [&](std::int64_t c) { return u[c] * (log_sum - (A(x[first + c]) - max)); });
      all += cpu::sum_lanes<A>(count, [&](std::int64_t c) { return u[c]; });
    });
    stats[0] = max;
    stats[1] = A(1) / sum;
    stats[2] = all;
  });
  return loss;
}

}  // namespace

template <> void check_target(CpuContext&, const char* op, const Tensor& target, std::int64_t classes) {
  const std::int64_t* values = target.data<std::int64_t>();
  const std::int64_t n = target.numel(), step = n > 0 ? target.strides()[0] : 0;
  for (std::int64_t i = 0; i < n; ++i) {
    ATH_CHECK(values[i * step] >= 0 && values[i * step] < classes,
              "{}: target must be in [0, {}), but target[{}] is {}", op, classes, i, values[i * step]);
  }
}

template <>
void cross_entropy_forward(CpuContext& context, const Tensor& logits, const Tensor& target, double smoothing,
                           double scale, const Tensor& stats, const Tensor& losses, const Tensor& y) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
    const T* x = logits.data<T>();
    const std::int64_t* t = target.data<std::int64_t>();
    A* s = stats.data<A>();
    each_row(context, rows, row_grain(classes, kExpGrain), losses.data<A>(), [&](std::int64_t n) {
      return cross_entropy_row<T, A>(x + n * classes, classes, t[n], A(smoothing), s + 2 * n);
    });
    if (y.defined()) sum_rows<A>(rows, losses.data<A>(), scale, y);
  });
}

template <>
void cross_entropy_backward(CpuContext& context, const Tensor& logits, const Tensor& target,
                            const Tensor& stats, double smoothing, double scale, const Tensor& dy,
                            const Tensor& dx) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
    const T* x = logits.data<T>();
    const std::int64_t* t = target.data<std::int64_t>();
    const A* s = stats.data<A>();
    T* out = dx.data<T>();
    const RowGradient<A> gradient(dy, scale);
    const A spread = A(smoothing / static_cast<double>(classes)), on = A(1 - smoothing);
    parallel_for(context, rows, row_grain(classes, kExpGrain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const T* from = x + n * classes;
        T* to = out + n * classes;
        const A max = s[2 * n], inverse = s[2 * n + 1], g = gradient[n];
        cpu::vectorize_if<cpu::kFastType<T>>([&] {
          for (std::int64_t c = 0; c < classes; ++c) {
            to[c] = T(g * (math::exp(A(from[c]) - max) * inverse - spread));
          }
        });
        const A p = math::exp(A(from[t[n]]) - max) * inverse;
        to[t[n]] = T(g * (p - spread - on));
      }
    });
  });
}

template <>
void soft_cross_entropy_forward(CpuContext& context, const Tensor& logits, const Tensor& target,
                                const Tensor& weight, double smoothing, const Tensor& stats,
                                const Tensor& losses) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
    const Shares<T> shares(target, weight, smoothing, classes);
    const T* x = logits.data<T>();
    A* s = stats.data<A>();
    each_row(context, rows, row_grain(classes, kExpGrain), losses.data<A>(), [&](std::int64_t n) {
      return soft_cross_entropy_row<T, A>(x + n * classes, classes, shares, n, s + 3 * n);
    });
  });
}

template <>
void soft_cross_entropy_backward(CpuContext& context, const Tensor& logits, const Tensor& target,
                                 const Tensor& weight, double smoothing, const Tensor& stats,
                                 const Tensor& dy, const Tensor& dx) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
    const Shares<T> shares(target, weight, smoothing, classes);
    const T* x = logits.data<T>();
    const A* s = stats.data<A>();
    T* out = dx.data<T>();
    const RowGradient<A> gradient(dy, 1);
    parallel_for(context, rows, row_grain(classes, kExpGrain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const T* from = x + n * classes;
        T* to = out + n * classes;
        const A max = s[3 * n], scale = s[3 * n + 1] * s[3 * n + 2], g = gradient[n];
        cpu::vectorize_if<cpu::kFastType<T>>([&] {
          shares.for_each(n, classes, [&](std::int64_t first, std::int64_t count, const A* u) {
            for (std::int64_t c = 0; c < count; ++c)
              to[first + c] = T(g * (math::exp(A(from[first + c]) - max) * scale - u[c]));
          });
        });
      }
    });
  });
}

template <>
void split_ignored(CpuContext& context, const Tensor& target, std::int64_t ignored, const Tensor& classes,
                   const Tensor& kept) {
  const std::int64_t* t = target.data<std::int64_t>();
  std::int64_t* label = classes.data<std::int64_t>();
  bool* is_kept = kept.data<bool>();
  parallel_for(context, target.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      is_kept[n] = t[n] != ignored;
      label[n] = is_kept[n] ? t[n] : 0;
    }
  });
}

template <>
void nll_forward(CpuContext& context, const Tensor& log_probs, const Tensor& target, double scale,
                 const Tensor& y) {
  dispatch_floating(log_probs.dtype(), "nll_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = log_probs.shape()[0], classes = log_probs.shape()[1];
    const T* x = log_probs.data<T>();
    const std::int64_t* t = target.data<std::int64_t>();
    reduce_rows<A>(context, rows, cpu::kGrain, scale, y,
                   [&](std::int64_t n) { return -A(x[n * classes + t[n]]); });
  });
}

template <>
void nll_backward(CpuContext& context, const Tensor& target, double scale, const Tensor& dy,
                  const Tensor& dx) {
  dispatch_floating(dx.dtype(), "nll_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = dx.shape()[0], classes = dx.shape()[1];
    const std::int64_t* t = target.data<std::int64_t>();
    T* out = dx.data<T>();
    const RowGradient<A> gradient(dy, scale);
    parallel_for(context, rows, row_grain(classes, cpu::kGrain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        T* row = out + n * classes;
        std::fill(row, row + classes, T(0.0f));
        row[t[n]] = T(-gradient[n]);
      }
    });
  });
}

}  // namespace athanor::kernels
