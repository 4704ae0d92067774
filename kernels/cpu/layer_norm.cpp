#include <algorithm>
#include <cmath>

#include "kernels/cpu/iterate.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/norm.h"
#include "kernels/norm_ops.h"

namespace athanor::kernels {
namespace {

using cpu::parallel_for;

constexpr std::int64_t kChunk = 16 * 1024;  // elements per slot of the parameters' gradients

struct Rows {
  std::int64_t size, rows, grain;  // elements per row; rows; rows worth a second thread

  Rows(const Tensor& x, const Tensor& stats)
      : size(stats.dim(0) > 0 ? x.numel() / stats.dim(0) : 1),
        rows(stats.dim(0)),
        grain(std::max<std::int64_t>(1, cpu::kGrain / 4 / size)) {}
};

/// Mean and 1 / sqrt(var + eps) of a row: the second pass finds it in cache.
template <class T, class A> void row_statistics(const T* x, std::int64_t n, double eps, A* stats) {
  const A mean = cpu::sum_lanes<A>(n, [=](std::int64_t i) { return A(x[i]); }) / A(n);
  const A squares = cpu::sum_lanes<A>(n, [=](std::int64_t i) {
    const A d = A(x[i]) - mean;
    return d * d;
  });
  stats[0] = mean;
  stats[1] = A(inverse_deviation(static_cast<double>(squares) / static_cast<double>(n), eps));
}

}  // namespace

template <>
void layer_norm_forward(CpuContext& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        double eps, const Tensor& stats, const Tensor& y) {
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const Rows rows(x, stats);
    const T* in = x.data<T>();
    const A* weight = gamma.defined() ? gamma.data<A>() : nullptr;
    const A* bias = beta.defined() ? beta.data<A>() : nullptr;
    A* s = stats.data<A>();
    T* out = y.data<T>();
    parallel_for(context, rows.rows, rows.grain, [&](std::int64_t begin, std::int64_t end) {
      cpu::vectorize_if<cpu::kFastType<T>>([&] {
        for (std::int64_t row = begin; row < end; ++row) {
          const T* __restrict from = in + row * rows.size;
          T* __restrict to = out + row * rows.size;
          row_statistics(from, rows.size, eps, s + 2 * row);
          const A mean = s[2 * row], inverse = s[2 * row + 1];
          for (std::int64_t j = 0; j < rows.size; ++j) {
            const A normalized = (A(from[j]) - mean) * inverse;
            to[j] = T(std::fma(normalized, weight ? weight[j] : A(1), bias ? bias[j] : A(0)));
          }
        }
      });
    });
  });
}

namespace {

/// Computes dx of one row.
template <class T, class A>
void row_gradient(const T* __restrict x, const T* __restrict dy, const A* __restrict weight, std::int64_t n,
                  A mean, A inverse, T* __restrict dx) {
  const auto g = [=](std::int64_t j) { return weight ? A(dy[j]) * weight[j] : A(dy[j]); };
  const auto normalized = [=](std::int64_t j) { return (A(x[j]) - mean) * inverse; };
  const A offset = cpu::sum_lanes<A>(n, g) / A(n);
  const A slope = cpu::sum_lanes<A>(n, [=](std::int64_t j) { return g(j) * normalized(j); }) / A(n);
  for (std::int64_t j = 0; j < n; ++j) dx[j] = T(layer_norm_dx(g(j), normalized(j), inverse, offset, slope));
}

/// Adds chunk sums in order: to[j] (+)= sum over chunks of slots[chunk * stride + j].
template <class A>
void add_slots(const GradientTarget& to, const A* slots, std::int64_t chunks, std::int64_t stride,
               std::int64_t n) {
  if (!to.tensor.defined()) return;
  A* out = to.tensor.data<A>();
  for (std::int64_t j = 0; j < n; ++j) {
    double total = to.write == Write::accumulate ? static_cast<double>(out[j]) : 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      total += static_cast<double>(slots[chunk * stride + j]);
    out[j] = A(total);
  }
}

template <class T, class A>
void parameter_gradients(CpuContext& context, const Rows& rows, const T* x, const T* dy, const A* stats,
                         const GradientTarget& dgamma, const GradientTarget& dbeta) {
  const std::int64_t n = (dgamma.tensor.defined() ? dgamma : dbeta).tensor.numel();
  const std::int64_t share = std::max({std::int64_t{1}, kChunk / n, rows.rows / 64});
  const std::int64_t chunks = (rows.rows + share - 1) / share;
  const Scratch memory = context.scratch(static_cast<std::size_t>(chunks * 2 * n) * sizeof(A));
  A* slots = memory.as<A>();
  parallel_for(context, chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorize_if<cpu::kFastType<T>>([&] {
      for (std::int64_t chunk = begin; chunk < end; ++chunk) {
        A* __restrict weight = slots + chunk * 2 * n, * __restrict bias = weight + n;
        std::fill(weight, weight + 2 * n, A(0));
        for (std::int64_t row = chunk * share; row < std::min(rows.rows, (chunk + 1) * share); ++row) {
          const T* __restrict from = x + row * n, * __restrict gradient = dy + row * n;
          const A mean = stats[2 * row], inverse = stats[2 * row + 1];
          for (std::int64_t j = 0; j < n; ++j) {
            const A g = A(gradient[j]);
            weight[j] = std::fma(g, (A(from[j]) - mean) * inverse, weight[j]);
            bias[j] += g;
          }
        }
      }
    });
  });
  add_slots(dgamma, slots, chunks, 2 * n, n);
  add_slots(dbeta, slots + n, chunks, 2 * n, n);
}

}  // namespace

template <>
void layer_norm_backward(CpuContext& context, const Tensor& x, const Tensor& gamma, const Tensor& stats,
                         const Tensor& dy, const Tensor& dx, const GradientTarget& dgamma,
                         const GradientTarget& dbeta) {
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const Rows rows(x, stats);
    const T *in = x.data<T>(), *gradient = dy.data<T>();
    const A *weight = gamma.defined() ? gamma.data<A>() : nullptr, *s = stats.data<A>();
    if (dx.defined()) {
      T* out = dx.data<T>();
      parallel_for(context, rows.rows, rows.grain, [&](std::int64_t begin, std::int64_t end) {
        cpu::vectorize_if<cpu::kFastType<T>>([&] {
          for (std::int64_t row = begin; row < end; ++row) {
            const std::int64_t at = row * rows.size;
            row_gradient(in + at, gradient + at, weight, rows.size, s[2 * row], s[2 * row + 1], out + at);
          }
        });
      });
    }
    if (dgamma.tensor.defined() || dbeta.tensor.defined())
      parameter_gradients(context, rows, in, gradient, s, dgamma, dbeta);
  });
}

}  // namespace athanor::kernels
