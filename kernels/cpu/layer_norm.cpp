#include <algorithm>
#include <cmath>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parameter_gradient.h"
#include "kernels/norm.h"
#include "kernels/norm_ops.h"
#include "kernels/scratch.h"

namespace athanor::kernels {
namespace {

using cpu::for_each_task;
using cpu::kFastType;

constexpr std::int64_t kChunk = 16 * 1024;  // elements per slot of the parameters' gradients

struct Rows {
  std::int64_t size, rows, grain;  // elements per row; rows; rows worth a second thread

  Rows(const Tensor& x, const Tensor& stats)
      : size(stats.dim(0) > 0 ? x.numel() / stats.dim(0) : 1),
        rows(stats.dim(0)),
        grain(cpu::grain_of(size, cpu::kGrain / 4)) {}
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

void layer_norm_forward(CpuContext& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        double eps, Out stats, Out y) {
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const Rows rows(x, stats);
    const T* in = x.data<T>();
    const A* weight = gamma.defined() ? gamma.data<A>() : nullptr;
    const A* bias = beta.defined() ? beta.data<A>() : nullptr;
    A* s = stats.data<A>();
    T* out = y.data<T>();
    for_each_task<kFastType<T>>(context, rows.rows, rows.grain, [&](std::int64_t row) {
      const T* __restrict from = in + row * rows.size;
      T* __restrict to = out + row * rows.size;
      row_statistics(from, rows.size, eps, s + 2 * row);
      const A mean = s[2 * row], inverse = s[2 * row + 1];
      for (std::int64_t j = 0; j < rows.size; ++j) {
        const A normalized = (A(from[j]) - mean) * inverse;
        to[j] = T(std::fma(normalized, weight ? weight[j] : A(1), bias ? bias[j] : A(0)));
      }
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

template <class T, class A>
void parameter_gradients(CpuContext& context, const Rows& rows, const T* x, const T* dy, const A* stats,
                         const GradientTarget& dgamma, const GradientTarget& dbeta) {
  const std::int64_t n = (dgamma.tensor.defined() ? dgamma : dbeta).tensor.numel();
  const std::int64_t share = std::max({std::int64_t{1}, kChunk / n, rows.rows / 64});
  const std::int64_t chunks = (rows.rows + share - 1) / share;
  const Scratch memory = context.scratch(static_cast<std::size_t>(chunks * 2 * n) * sizeof(A));
  A* slots = memory.as<A>();
  for_each_task<kFastType<T>>(context, chunks, 1, [&](std::int64_t chunk) {
    A* __restrict weight = slots + chunk * 2 * n;
    A* __restrict bias = weight + n;
    std::fill(weight, weight + 2 * n, A(0));
    for (std::int64_t row = chunk * share; row < std::min(rows.rows, (chunk + 1) * share); ++row) {
      const T* __restrict from = x + row * n;
      const T* __restrict gradient = dy + row * n;
      const A mean = stats[2 * row], inverse = stats[2 * row + 1];
      for (std::int64_t j = 0; j < n; ++j) {
        const A g = A(gradient[j]);
        weight[j] = std::fma(g, (A(from[j]) - mean) * inverse, weight[j]);
        bias[j] += g;
      }
    }
  });
  // Chunks are added in order.
  const auto total = [=](const A* slot) {
    return [=](double sum, std::int64_t j) {
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
        sum += static_cast<double>(slot[chunk * 2 * n + j]);
      return sum;
    };
  };
  cpu::write_parameter<A>(dgamma, n, total(slots));
  cpu::write_parameter<A>(dbeta, n, total(slots + n));
}

}  // namespace

void layer_norm_backward(CpuContext& context, const Tensor& x, const Tensor& gamma, const Tensor& stats,
                         const Tensor& dy, Out dx, const GradientTarget& dgamma,
                         const GradientTarget& dbeta) {
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const Rows rows(x, stats);
    const T *in = x.data<T>(), *gradient = dy.data<T>();
    const A *weight = gamma.defined() ? gamma.data<A>() : nullptr, *s = stats.data<A>();
    if (dx.defined()) {
      T* out = dx.data<T>();
      for_each_task<kFastType<T>>(context, rows.rows, rows.grain, [&](std::int64_t row) {
        const std::int64_t at = row * rows.size;
        row_gradient(in + at, gradient + at, weight, rows.size, s[2 * row], s[2 * row + 1], out + at);
      });
    }
    if (dgamma.tensor.defined() || dbeta.tensor.defined())
      parameter_gradients(context, rows, in, gradient, s, dgamma, dbeta);
  });
}

}  // namespace athanor::kernels
