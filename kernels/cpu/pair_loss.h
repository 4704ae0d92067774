#pragma once

#include "kernels/cpu/iterate.h"
#include "kernels/cpu/lanes.h"
#include "kernels/loss.h"

// The loops of pair_loss.cpp and target_loss.cpp. Without code for each vector width: eight losses of four
// dtypes would take the compiler a minute, and they wait for memory.

namespace athanor::kernels {
namespace {

using cpu::parallel_for;

constexpr std::int64_t kChunk = 1024;  // elements summed by one thread before their sum is rounded

// Element i of the operands, as what is computed with them; a and b and perhaps a weight.
template <bool kWeighted, class T> struct Operands {
  using A = Accumulate<T>;
  const T *a, *b;
  const A* weight;

  Operands(const Tensor& left, const Tensor& right, const Tensor& weights)
      : a(left.data<T>()), b(right.data<T>()), weight(kWeighted ? weights.data<A>() : nullptr) {}
  template <class F> A apply(const F& f, std::int64_t i) const {
    if constexpr (kWeighted) {
      return f(A(a[i]), A(b[i]), weight[i]);
    } else {
      return f(A(a[i]), A(b[i]));
    }
  }
};

template <class Op>
void run_each(CpuContext& context, const Op& op, const Tensor& a, const Tensor& b, const Tensor& weight,
              const Tensor& y) {
  dispatch_floating(a.dtype(), "pair_loss", [&]<class T>() {
    const Operands<Op::kWeighted, T> x(a, b, weight);
    const auto value = [op](auto... in) { return op.value(in...); };
    auto* out = y.data<Accumulate<T>>();
    parallel_for(context, a.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
      cpu::vectorize_if<false>([&] {
        for (std::int64_t i = begin; i < end; ++i) out[i] = x.apply(value, i);
      });
    });
  });
}

template <class Op>
void run_sum(CpuContext& context, const Op& op, const Tensor& a, const Tensor& b, const Tensor& weight,
             double scale, const Tensor& y) {
  dispatch_floating(a.dtype(), "pair_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const Operands<Op::kWeighted, T> x(a, b, weight);
    const auto value = [op](auto... in) { return op.value(in...); };
    const std::int64_t n = a.numel(), chunks = (n + kChunk - 1) / kChunk;
    const Scratch scratch = context.scratch(static_cast<std::size_t>(chunks) * sizeof(A));
    A* sums = scratch.as<A>();
    parallel_for(context, chunks, cpu::kGrain / kChunk, [&](std::int64_t begin, std::int64_t end) {
      cpu::vectorize_if<false>([&] {
        for (std::int64_t chunk = begin; chunk < end; ++chunk) {
          const std::int64_t first = chunk * kChunk;
          sums[chunk] = cpu::sum_lanes<A>(std::min(kChunk, n - first),
                                          [&](std::int64_t i) { return x.apply(value, first + i); });
        }
      });
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
    const Operands<Op::kWeighted, T> x(a, b, weight);
    const auto slope = [op](auto... in) { return op.slope(in...); };
    const A *gradient = dy.data<A>(), factor = A(scale);
    const bool reduced = dy.rank() == 0;
    T* out = da.data<T>();
    parallel_for(context, a.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
      cpu::vectorize_if<false>([&] {
        if (reduced) {
          const A g = factor * *gradient;
          for (std::int64_t i = begin; i < end; ++i) out[i] = T(g * x.apply(slope, i));
        } else {
          for (std::int64_t i = begin; i < end; ++i) out[i] = T(factor * gradient[i] * x.apply(slope, i));
        }
      });
    });
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
