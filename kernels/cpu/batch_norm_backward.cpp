#include <cmath>
#include <type_traits>

#include "kernels/cpu/context.h"
#include "kernels/cpu/parameter_gradient.h"
#include "kernels/cpu/wide_rows.h"
#include "kernels/norm.h"
#include "kernels/scratch.h"

namespace athanor::kernels {
namespace {

/// Sums of g and of g (x - mean) over a chunk, g = dL/d(pre). If the policy needs `extra`, g is stored in
/// dresidual and summed as rounded there, because dx is computed from that.
template <class Policy, class T, class A>
void sum_gradients(const Wide& wide, std::int64_t chunk, const Affine<A>& affine, const T* x, const T* dy,
                   const T* extra, T* dresidual, A* sums) {
  std::fill(sums, sums + 2 * wide.width, A(0));
  const auto group = [&](std::int64_t at, std::int64_t n, auto each) {
    const T* __restrict in = x + at;
    const T* __restrict grad = dy + at;
    const T* __restrict more = extra + (Policy::kExtra ? at : 0);
    T* __restrict keep = dresidual + (Policy::kExtra ? at : 0);
    const A* __restrict mean = affine.mean;
    const A* __restrict scale = affine.scale;
    const A* __restrict beta = affine.beta;
    A* __restrict s = sums;
    A* __restrict q = sums + wide.width;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) {
      A sum(0), product(0);
      each([&](std::int64_t r) {
        const std::int64_t i = r * wide.width + j;
        const A d = A(in[i]) - mean[j];
        A more_here(0);
        if constexpr (Policy::kExtra) more_here = A(more[i]);
        A g = Policy::gradient(A(grad[i]), d, scale[j], beta[j], more_here);
        if constexpr (Policy::kExtra) g = A(keep[i] = T(g));
        sum += g;
        product = std::fma(g, d, product);
      });
      s[j] += sum;
      q[j] += product;
    }
  };
  wide.for_each_group<kTogether<T, typename Policy::Op>>(chunk, group);
}

/// Computes dx of a chunk.
template <class Policy, class T, class A>
void write_dx(const Wide& wide, std::int64_t chunk, const Affine<A>& affine, const A* offsets,
              const A* slopes, const T* x, const T* dy, T* dx) {
  const auto group = [&](std::int64_t at, std::int64_t n, auto each) {
    const T* __restrict in = x + at;
    const T* __restrict grad = dy + at;
    T* __restrict out = dx + at;
    const A* __restrict mean = affine.mean;
    const A* __restrict scale = affine.scale;
    const A* __restrict beta = affine.beta;
    const A* __restrict offset = offsets;
    const A* __restrict slope = slopes;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) {
      each([&](std::int64_t r) {
        const std::int64_t i = r * wide.width + j;
        const A d = A(in[i]) - mean[j];
        const A g = Policy::gradient(A(grad[i]), d, scale[j], beta[j], A(0));
        out[i] = T(batch_norm_dx(g, d, scale[j], slope[j], offset[j]));
      });
    }
  };
  wide.for_each_group<kTogether<T, typename Policy::Op>>(chunk, group);
}

/// Computes dgamma, dbeta, dresidual, and in `row` the number of values and the two sums of every channel.
template <class Sum, class T>
void run_sums(CpuContext& context, const BatchNormBackward& args, const Wide& wide,
              const Affine<Accumulate<T>>& affine, double* row) {
  using A = Accumulate<T>;
  const T *x = args.x.data<T>(), *dy = args.dy.data<T>();
  const T* extra = args.extra.defined() ? args.extra.data<T>() : nullptr;
  T* dresidual = args.extra.defined() ? args.dresidual.data<T>() : nullptr;
  const Sums<A> sums(context, wide);
  wide.for_each_chunk<kFastType<T>, From::end>(context, [&](std::int64_t chunk) {
    sum_gradients<Sum>(wide, chunk, affine, x, dy, extra, dresidual, sums.slot(chunk));
    sums.fold(chunk);
  });
  sums.total();
  row[0] = static_cast<double>(wide.rows);
  std::copy(sums.first(), sums.first() + 2 * wide.channels, row + 1);

  const A* inverse = args.stats.data<A>() + wide.channels;
  cpu::write_parameter<A>(args.dgamma, wide.channels, [&](double before, std::int64_t c) {
    return before + sums.second()[c] * static_cast<double>(inverse[c]);
  });
  cpu::write_parameter<A>(args.dbeta, wide.channels,
                          [&](double before, std::int64_t c) { return before + sums.first()[c]; });
}

/// Computes dx from the rows of all ranks.
template <class Dx, class T>
void run_dx(CpuContext& context, const BatchNormBackward& args, const Wide& wide,
            const Affine<Accumulate<T>>& affine, const double* rows, std::int64_t ranks) {
  using A = Accumulate<T>;
  if (!args.dx.defined()) return;
  const Scratch memory = context.scratch(static_cast<std::size_t>(2 * wide.width) * sizeof(A));
  A *offset = memory.as<A>(), *slope = offset + wide.width;
  const A* inverse = args.stats.data<A>() + wide.channels;
  for (std::int64_t c = 0; c < wide.channels; ++c) {
    const JoinedSums sums = joined_sums(rows, ranks, wide.channels, c);
    const double share = args.training ? 1 / sums.n : 0, scale = static_cast<double>(inverse[c]);
    offset[c] = A(batch_norm_mean(sums.first, share));
    slope[c] = A(batch_norm_mean(sums.second * scale * scale, share));
  }
  wide.repeat(offset, [=](std::int64_t c) { return offset[c]; });
  wide.repeat(slope, [=](std::int64_t c) { return slope[c]; });
  const T* x = args.x.data<T>();
  const T* gradient = args.extra.defined() ? args.dresidual.data<T>() : args.dy.data<T>();
  T* dx = args.dx.data<T>();
  wide.for_each_chunk<kFastType<T>, From::begin>(context, [&](std::int64_t chunk) {
    write_dx<Dx>(wide, chunk, affine, offset, slope, x, gradient, dx);
  });
}

/// f<Sum, Dx, T>(): selects how the two passes get g = dL/d(pre).
template <class F> void dispatch_passes(const BatchNormBackward& args, const F& f) {
  dispatch_floating(args.x.dtype(), "batch_norm", [&]<class T>() {
    dispatch_activation(args.activation, [&]<class Op>() {
      if (!args.extra.defined()) return f.template operator()<FromX<Op>, FromX<Op>, T>();
      if constexpr (std::is_same_v<Op, Identity>) {
      } else if constexpr (Op::kFromOutput) {
        f.template operator()<FromOutput<Op>, FromX<Identity>, T>();
      } else {
        f.template operator()<FromResidual<Op>, FromX<Identity>, T>();
      }
    });
  });
}

}  // namespace

void batch_norm_backward(CpuContext& context, const BatchNormBackward& args) {
  dispatch_passes(args, [&]<class Sum, class Dx, class T>() {
    const Wide wide(args.x);
    const Affine<Accumulate<T>> affine(context, wide, args.gamma, args.beta, args.stats);
    const Scratch memory = context.scratch(static_cast<std::size_t>(1 + 2 * wide.channels) * sizeof(double));
    run_sums<Sum, T>(context, args, wide, affine, memory.as<double>());
    run_dx<Dx, T>(context, args, wide, affine, memory.as<double>(), 1);
  });
}

void batch_norm_backward_sums(CpuContext& context, const BatchNormBackward& args, Out row) {
  dispatch_passes(args, [&]<class Sum, class Dx, class T>() {
    const Wide wide(args.x);
    const Affine<Accumulate<T>> affine(context, wide, args.gamma, args.beta, args.stats);
    run_sums<Sum, T>(context, args, wide, affine, row.data<double>());
  });
}

void batch_norm_backward_join(CpuContext& context, const BatchNormBackward& args, const Tensor& rows) {
  dispatch_passes(args, [&]<class Sum, class Dx, class T>() {
    const Wide wide(args.x);
    const Affine<Accumulate<T>> affine(context, wide, args.gamma, args.beta, args.stats);
    run_dx<Dx, T>(context, args, wide, affine, rows.data<double>(), rows.dim(0));
  });
}

}  // namespace athanor::kernels
