#include "kernels/cpu/context.h"
#include "kernels/cpu/wide_rows.h"
#include "kernels/norm.h"
#include "kernels/scratch.h"

namespace athanor::kernels {
namespace {

/// A rough mean per channel, from evenly spaced rows of x.
template <class T, class A> void sample_means(const Wide& wide, const T* x, A* means) {
  const std::int64_t samples = std::min<std::int64_t>(16, wide.rows);
  std::fill(means, means + wide.channels, A(0));
  cpu::vectorize_if<kFastType<T>>([&] {
    for (std::int64_t i = 0; i < samples; ++i) {
      const T* __restrict row = x + i * (wide.rows / samples) * wide.channels;
      for (std::int64_t c = 0; c < wide.channels; ++c) means[c] += A(row[c]);
    }
    for (std::int64_t c = 0; c < wide.channels; ++c) means[c] /= A(samples);
  });
  for (std::int64_t i = wide.channels; i < wide.width; ++i) means[i] = means[i - wide.channels];
}

/// Sums of x - shift and of its square over a chunk.
template <class T, class A>
void sum_deviations(const Wide& wide, std::int64_t chunk, const T* x, const A* shifts, A* sums) {
  std::fill(sums, sums + 2 * wide.width, A(0));
  wide.for_each_group<kTogether<T, Identity>>(chunk, [&](std::int64_t at, std::int64_t n, auto each) {
    const T* __restrict in = x + at;
    const A* __restrict shift = shifts;
    A* __restrict s = sums, * __restrict q = sums + wide.width;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) {
      A sum(0), square(0);
      each([&](std::int64_t r) {
        const A d = A(in[r * wide.width + j]) - shift[j];
        sum += d;
        square = std::fma(d, d, square);
      });
      s[j] += sum;
      q[j] += square;
    }
  });
}

/// Calls f(channel, its Moments) for every channel of x, R >= 1.
template <class T, class F> void for_each_moments(CpuContext& context, const Tensor& x, const F& f) {
  using A = Accumulate<T>;
  const Wide wide(x);
  const T* in = x.data<T>();
  const Scratch memory = context.scratch(static_cast<std::size_t>(wide.width) * sizeof(A));
  A* shift = memory.as<A>();
  sample_means(wide, in, shift);
  const Sums<A> sums(context, wide);
  wide.for_each_chunk<kFastType<T>, From::end>(context, [&](std::int64_t chunk) {
    sum_deviations(wide, chunk, in, shift, sums.slot(chunk));
    sums.fold(chunk);
  });
  sums.total();
  const double n = static_cast<double>(wide.rows);
  for (std::int64_t c = 0; c < wide.channels; ++c)
    f(c, moments(static_cast<double>(shift[c]), sums.first()[c], sums.second()[c], n));
}

/// Stores the stats of a channel and updates its running ones; n values.
template <class A>
void write_statistics(std::int64_t c, const Moments& found, double n, double eps, const Tensor& stats,
                      const RunningStats& running) {
  A* mean = stats.data<A>();
  mean[c] = A(found.mean);
  mean[stats.dim(1) + c] = A(inverse_deviation(found.var, eps));
  if (!running.mean.defined()) return;
  A &center = running.mean.data<A>()[c], &var = running.var.data<A>()[c];
  center = moved_towards(center, found.mean, running.momentum);
  var = moved_towards(var, found.var * n / (n - 1), running.momentum);
}

}  // namespace

void batch_norm_statistics(CpuContext& context, const Tensor& x, double eps, Out stats,
                           const RunningStats& running) {
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    const double n = static_cast<double>(x.numel()) / static_cast<double>(x.dim(-1));
    for_each_moments<T>(context, x, [&](std::int64_t c, const Moments& found) {
      write_statistics<Accumulate<T>>(c, found, n, eps, stats, running);
    });
  });
}

void batch_norm_training(CpuContext& context, const BatchNormTraining& args) {
  if (args.sums.defined()) {
    const std::int64_t channels = args.x.dim(-1);
    const double n = static_cast<double>(args.x.numel() / channels);
    const double* const sums = args.sums.data<double>();
    for (std::int64_t c = 0; c < channels; ++c)
      write_statistics<float>(c, moments(0, sums[c], sums[channels + c], n), n, args.eps, args.stats,
                              args.running);
  } else {
    batch_norm_statistics(context, args.x, args.eps, args.stats, args.running);
  }
  batch_norm_forward(context, args.activation, args.x, args.gamma, args.beta, args.stats, args.residual,
                     args.y);
}

void batch_norm_moments(CpuContext& context, const Tensor& x, Out row) {
  auto* to = row.data<double>();
  std::fill(to, to + row.numel(), 0.0);
  if (x.numel() == 0) return;
  const std::int64_t channels = x.dim(-1);
  const double n = to[0] = static_cast<double>(x.numel() / channels);
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    for_each_moments<T>(context, x, [&](std::int64_t c, const Moments& found) {
      to[1 + c] = found.mean;
      to[1 + channels + c] = found.var * n;
    });
  });
}

void batch_norm_join(CpuContext&, const Tensor& rows, double eps, Out stats, const RunningStats& running) {
  dispatch_floating(stats.dtype(), "batch_norm", [&]<class A>() {
    if constexpr (sizeof(A) >= 4) {
      const std::int64_t channels = stats.dim(1);
      for (std::int64_t c = 0; c < channels; ++c) {
        const JoinedMoments joined = joined_moments(rows.data<double>(), rows.dim(0), channels, c);
        write_statistics<A>(c, {joined.mean, joined.squares / joined.n}, joined.n, eps, stats, running);
      }
    }
  });
}

void batch_norm_fixed(CpuContext&, const RunningStats& running, double eps, Out stats) {
  dispatch_floating(stats.dtype(), "batch_norm", [&]<class A>() {
    if constexpr (sizeof(A) >= 4) {
      const std::int64_t channels = stats.dim(1);
      A* to = stats.data<A>();
      for (std::int64_t c = 0; c < channels; ++c) {
        to[c] = running.mean.data<A>()[c];
        to[channels + c] = A(inverse_deviation(static_cast<double>(running.var.data<A>()[c]), eps));
      }
    }
  });
}

}  // namespace athanor::kernels
