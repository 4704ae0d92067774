#pragma once

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/lanes.h"
#include "kernels/loss.h"
#include "kernels/scratch.h"

// The loops of pair_loss.cpp and target_loss.cpp. They convert chunks to the compute type, so that the maths
// of a loss is compiled only for f32 and f64.

namespace athanor::kernels {
namespace {

using cpu::parallel_for;

constexpr std::int64_t kChunk = 1024;  // elements summed by one thread before their sum is rounded

/// Parallel arrays of the operands' elements.
template <class A> struct Pairs { const A *a, *b, *weight; };

/// `count` elements of T as A: converted into `buffer`, or in place.
template <class A, class T> const A* widened(const T* from, std::int64_t count, A* buffer) {
  if constexpr (std::is_same_v<A, T>) {
    return from;
  } else {
    cpu::vectorize([&] {
      for (std::int64_t i = 0; i < count; ++i) buffer[i] = A(from[i]);
    });
    return buffer;
  }
}

/// to[i] = f(the pair's numbers).
template <class Op, class A, class F>
void write_each(const Pairs<A>& x, std::int64_t count, A* to, const F& f) {
  cpu::vectorize_if<cpu::kFastType<A>>([=] {
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (Op::kWeighted) {
        to[i] = f(x.a[i], x.b[i], x.weight[i]);
      } else {
        to[i] = f(x.a[i], x.b[i]);
      }
    }
  });
}
template <class Op, class A> void write_values(const Op& op, const Pairs<A>& x, std::int64_t count, A* to) {
  write_each<Op>(x, count, to, [op](auto... numbers) { return op.value(numbers...); });
}
template <class Op, class A> void write_slopes(const Op& op, const Pairs<A>& x, std::int64_t count, A* to) {
  write_each<Op>(x, count, to, [op](auto... numbers) { return op.slope(numbers...); });
}

/// Calls f(chunk, first, count, pairs) for every chunk, in parallel.
template <class T, class F>
void for_each_chunk(CpuContext& context, const Tensor& a, const Tensor& b, const Tensor& weight, const F& f) {
  using A = Accumulate<T>;
  const T *left = a.data<T>(), *right = b.data<T>();
  const A* weights = weight.defined() ? weight.data<A>() : nullptr;
  const std::int64_t n = a.numel(), chunks = (n + kChunk - 1) / kChunk;
  parallel_for(context, chunks, cpu::kGrain / kChunk, [&](std::int64_t begin, std::int64_t end) {
    A wide_a[kChunk], wide_b[kChunk];
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t first = chunk * kChunk, count = std::min(kChunk, n - first);
      f(chunk, first, count,
        Pairs<A>{widened(left + first, count, wide_a), widened(right + first, count, wide_b),
                 weights + (weights ? first : 0)});
    }
  });
}

template <class Op>
void run_each(CpuContext& context, const Op& op, const Tensor& a, const Tensor& b, const Tensor& weight,
              const Tensor& y) {
  dispatch_floating(a.dtype(), "pair_loss", [&]<class T>() {
    auto* out = y.data<Accumulate<T>>();
    for_each_chunk<T>(context, a, b, weight,
                      [&](std::int64_t, std::int64_t first, std::int64_t count, const auto& x) {
                        write_values(op, x, count, out + first);
                      });
  });
}

template <class Op>
void run_sum(CpuContext& context, const Op& op, const Tensor& a, const Tensor& b, const Tensor& weight,
             double scale, const Tensor& y) {
  dispatch_floating(a.dtype(), "pair_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t chunks = (a.numel() + kChunk - 1) / kChunk;
    const Scratch scratch = context.scratch(static_cast<std::size_t>(chunks) * sizeof(A));
    A* sums = scratch.as<A>();
    for_each_chunk<T>(
        context, a, b, weight, [&](std::int64_t chunk, std::int64_t, std::int64_t count, const auto& x) {
          A values[kChunk];
          write_values(op, x, count, values);
          cpu::vectorize_if<cpu::kFastType<A>>(
              [&] { sums[chunk] = cpu::sum_lanes<A>(count, [&](std::int64_t i) { return values[i]; }); });
        });
    double total = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) total += static_cast<double>(sums[chunk]);
    *y.data<A>() = A(total * scale);
  });
}

template <class Op>
void run_backward(CpuContext& context, const Op& op, const Tensor& a, const Tensor& b, const Tensor& weight,
                  double scale, const Tensor& dy, const Tensor& da) {
  dispatch_floating(a.dtype(), "pair_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const A *gradient = dy.data<A>(), factor = A(scale);
    const bool reduced = dy.rank() == 0;
    T* out = da.data<T>();
    const auto run = [&](std::int64_t, std::int64_t first, std::int64_t count, const auto& x) {
      A slopes[kChunk];
      write_slopes(op, x, count, slopes);
      cpu::vectorize_if<cpu::kFastType<T>>([&, to = out + first] {
        if (reduced) {
          const A g = factor * *gradient;
          for (std::int64_t i = 0; i < count; ++i) to[i] = T(g * slopes[i]);
        } else {
          for (std::int64_t i = 0; i < count; ++i) to[i] = T(factor * gradient[first + i] * slopes[i]);
        }
      });
    };
    for_each_chunk<T>(context, a, b, weight, run);
  });
}

}  // namespace
}  // namespace athanor::kernels

// In namespace athanor::kernels.
#define ATH_SPECIALISE_PAIR_LOSS_BACKWARD(...)                                                       \
  template <>                                                                                        \
  void pair_loss_backward<__VA_ARGS__>(CpuContext & context, const __VA_ARGS__& op, const Tensor& a, \
                                       const Tensor& b, const Tensor& weight, double scale,          \
                                       const Tensor& dy, const Tensor& da) {                         \
    run_backward(context, op, a, b, weight, scale, dy, da);                                          \
  }
#define ATH_SPECIALISE_PAIR_LOSS(Op)                                                           \
  template <>                                                                                  \
  void pair_loss<Op>(CpuContext & context, const Op& op, const Tensor& a, const Tensor& b,     \
                     const Tensor& weight, const Tensor& y) {                                  \
    run_each(context, op, a, b, weight, y);                                                    \
  }                                                                                            \
  template <>                                                                                  \
  void pair_loss_sum<Op>(CpuContext & context, const Op& op, const Tensor& a, const Tensor& b, \
                         const Tensor& weight, double scale, const Tensor& y) {                \
    run_sum(context, op, a, b, weight, scale, y);                                              \
  }                                                                                            \
  ATH_SPECIALISE_PAIR_LOSS_BACKWARD(Op)
