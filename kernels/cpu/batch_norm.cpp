#include <cmath>
#include <type_traits>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/norm.h"
#include "kernels/norm_ops.h"

// x is [R, C] in memory. A loop over C alone would be short for small C, and a loop down a column strided. So
// rows are read as wide rows of C * m elements, with m chosen to make them a few hundred long; every
// per-channel value is repeated m times, and sums are folded from C * m to C at the end. All loops then run
// over a wide row, dense, whatever C is. Four wide rows are taken at a time, so that the per-channel values
// are loaded once for all four.
//
// Sums: each chunk of wide rows (its size depends on the shape alone) sums into its own slot in A, and slots
// are added up in order in double. So the result depends neither on the number of threads nor on the vector
// width.

namespace athanor::kernels {
namespace {

using cpu::parallel_for;
using cpu::vectorize;

constexpr std::int64_t kWide = 256;         // elements of a wide row, at least
constexpr std::int64_t kChunk = 32 * 1024;  // elements of a chunk, at least
constexpr int kRows = 4;                    // wide rows taken together

/// Calls f(0), f(1), ... f(N - 1), written out.
template <int N> struct Rows {
  template <class F> void operator()(const F& f) const {
    [&]<int... r>(std::integer_sequence<int, r...>) {
      (f(r), ...);
    }
    (std::make_integer_sequence<int, N>());
  }
};

/// Wide rows taken together: one where arithmetic, not memory, sets the pace (it is less code by far).
template <class T, class Op>
inline constexpr int kTogether = sizeof(T) == 8 || !(std::is_same_v<Op, Identity> || std::is_same_v<Op, Relu>)
                                     ? 1
                                     : kRows;

/// x [R, C] as wide rows in chunks.
struct Wide {
  std::int64_t channels, rows, repeats, width, total, chunk, chunks;

  explicit Wide(const Tensor& x)
      : channels(x.dim(-1)),
        rows(channels > 0 ? x.numel() / channels : 0),
        repeats(channels > 0 ? (kWide + channels - 1) / channels : 1),
        width(channels * repeats),
        total(x.numel()) {
    const std::int64_t group = std::max<std::int64_t>(kRows * width, 1);
    const std::int64_t wanted = std::clamp<std::int64_t>(total / 64, kChunk, 4 * kChunk);
    chunk = (wanted + group - 1) / group * group;
    chunks = (total + chunk - 1) / chunk;
  }

  /// Calls f(first element, elements per row, each) over a chunk; each is a Rows<...>.
  template <int kTogether, class F> void for_each_group(std::int64_t index, const F& f) const {
    std::int64_t at = index * chunk;
    const std::int64_t end = std::min(at + chunk, total);
    if constexpr (kTogether > 1) {
      for (; at + kTogether * width <= end; at += kTogether * width) f(at, width, Rows<kTogether>());
    }
    for (; at < end; at += width) f(at, std::min(width, end - at), Rows<1>());
  }
  template <class F> void for_each_chunk(const CpuContext& context, const F& f) const {
    parallel_for(context, chunks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) f(i);
    });
  }
  /// to[c + i * channels] = value(c)
  template <class A, class F> void repeat(A* to, const F& value) const {
    for (std::int64_t c = 0; c < channels; ++c) to[c] = value(c);
    for (std::int64_t i = channels; i < width; ++i) to[i] = to[i - channels];
  }
};

/// Two sums per channel: a slot of 2 * width per chunk while they are summed, then [2, C] totals in double.
template <class A> class Sums {
 public:
  Sums(CpuContext& context, const Wide& wide)
      : wide_(wide),
        slots_(context.scratch(static_cast<std::size_t>(wide.chunks * 2 * wide.width) * sizeof(A))),
        totals_(context.scratch(static_cast<std::size_t>(2 * wide.channels) * sizeof(double))) {}

  A* slot(std::int64_t chunk) const { return slots_.as<A>() + chunk * 2 * wide_.width; }
  const double* first() const { return totals_.as<double>(); }
  const double* second() const { return first() + wide_.channels; }

  /// Folds the wide sums of a chunk onto its first C elements.
  void fold(std::int64_t chunk) const {
    for (A* sums : {slot(chunk), slot(chunk) + wide_.width}) {
      for (std::int64_t i = wide_.channels; i < wide_.width; i += wide_.channels) {
        for (std::int64_t c = 0; c < wide_.channels; ++c) sums[c] += sums[i + c];
      }
    }
  }
  void total() const {
    double* totals = totals_.as<double>();
    std::fill(totals, totals + 2 * wide_.channels, 0.0);
    vectorize([&] {
      for (std::int64_t chunk = 0; chunk < wide_.chunks; ++chunk) {
        const A* __restrict s = slot(chunk), * __restrict q = s + wide_.width;
        double* __restrict first = totals, * __restrict second = totals + wide_.channels;
        for (std::int64_t c = 0; c < wide_.channels; ++c) first[c] += static_cast<double>(s[c]);
        for (std::int64_t c = 0; c < wide_.channels; ++c) second[c] += static_cast<double>(q[c]);
      }
    });
  }

 private:
  const Wide& wide_;
  Scratch slots_, totals_;
};

// Statistics -----------------------------------------------------------------------------------------------

/// A rough mean per channel, of rows spread evenly over x.
template <class T, class A> void sample_means(const Wide& wide, const T* x, A* means) {
  const std::int64_t samples = std::min<std::int64_t>(16, wide.rows);
  std::fill(means, means + wide.channels, A(0));
  vectorize([&] {
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

}  // namespace

namespace {

/// f(channel, its Moments) for every channel of x, R >= 1.
template <class T, class F> void for_each_moments(CpuContext& context, const Tensor& x, const F& f) {
  using A = Accumulate<T>;
  const Wide wide(x);
  const T* in = x.data<T>();
  const Scratch memory = context.scratch(static_cast<std::size_t>(wide.width) * sizeof(A));
  A* shift = memory.as<A>();
  sample_means(wide, in, shift);
  const Sums<A> sums(context, wide);
  wide.for_each_chunk(context, [&](std::int64_t chunk) {
    vectorize([&] {
      sum_deviations(wide, chunk, in, shift, sums.slot(chunk));
      sums.fold(chunk);
    });
  });
  sums.total();
  const double n = static_cast<double>(wide.rows);
  for (std::int64_t c = 0; c < wide.channels; ++c)
    f(c, moments(static_cast<double>(shift[c]), sums.first()[c], sums.second()[c], n));
}

/// stats of a channel, and its running ones moved; n values.
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

template <>
void batch_norm_statistics(CpuContext& context, const Tensor& x, double eps, const Tensor& stats,
                           const RunningStats& running) {
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    const double n = static_cast<double>(x.numel()) / static_cast<double>(x.dim(-1));
    for_each_moments<T>(context, x, [&](std::int64_t c, const Moments& found) {
      write_statistics<Accumulate<T>>(c, found, n, eps, stats, running);
    });
  });
}

template <> void batch_norm_moments(CpuContext& context, const Tensor& x, const Tensor& row) {
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

template <>
void batch_norm_join(CpuContext&, const Tensor& rows, double eps, const Tensor& stats,
                     const RunningStats& running) {
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

template <> void batch_norm_fixed(CpuContext&, const RunningStats& running, double eps, const Tensor& stats) {
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

// Forward --------------------------------------------------------------------------------------------------

namespace {

/// Per-channel values repeated over a wide row: what is subtracted, multiplied and added.
template <class A> struct Affine {
  Scratch memory;
  A *mean, *scale, *beta;

  Affine(CpuContext& context, const Wide& wide, const Tensor& gamma, const Tensor& shift, const Tensor& stats)
      : memory(context.scratch(static_cast<std::size_t>(3 * wide.width) * sizeof(A))),
        mean(memory.as<A>()),
        scale(mean + wide.width),
        beta(scale + wide.width) {
    const A *from = stats.data<A>(), *inverse = from + wide.channels;
    const A* weight = gamma.defined() ? gamma.data<A>() : nullptr;
    const A* bias = shift.defined() ? shift.data<A>() : nullptr;
    wide.repeat(mean, [=](std::int64_t c) { return from[c]; });
    wide.repeat(scale, [=](std::int64_t c) { return weight ? inverse[c] * weight[c] : inverse[c]; });
    wide.repeat(beta, [=](std::int64_t c) { return bias ? bias[c] : A(0); });
  }
};

template <class Op, bool kResidual, class T, class A>
void apply(const Wide& wide, std::int64_t chunk, const Affine<A>& affine, const T* x, const T* residual,
           T* y) {
  wide.for_each_group<kTogether<T, Op>>(chunk,
                                        [&](std::int64_t at, std::int64_t n, auto each) {
                                          const T* __restrict in = x + at, * __restrict plus =
                                                                               residual +
                                                                               (kResidual ? at : 0);
                                          T* __restrict out = y + at;
                                          const A *__restrict mean = affine.mean, *__restrict scale = affine.scale, *__restrict beta = affine.beta;
#pragma GCC ivdep
                                          for (std::int64_t j = 0; j < n; ++j) {
                                            each([&](std::int64_t r) {
                                              const std::int64_t i = r * wide.width + j;
                                              A pre = std::fma(A(in[i]) - mean[j], scale[j], beta[j]);
                                              if constexpr (kResidual) pre += A(plus[i]);
                                              out[i] = T(Op::forward(pre));
                                            });
                                          }
                                        });
}

}  // namespace

template <>
void batch_norm_forward(CpuContext& context, Activation activation, const Tensor& x, const Tensor& gamma,
                        const Tensor& beta, const Tensor& stats, const Tensor& residual, const Tensor& y) {
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const Wide wide(x);
    const Affine<A> affine(context, wide, gamma, beta, stats);
    const T* in = x.data<T>();
    const T* plus = residual.defined() ? residual.data<T>() : nullptr;
    T* out = y.data<T>();
    dispatch_activation(activation, [&]<class Op>() {
      wide.for_each_chunk(context, [&](std::int64_t chunk) {
        vectorize([&] {
          if (plus) {
            apply<Op, true>(wide, chunk, affine, in, plus, out);
          } else {
            apply<Op, false>(wide, chunk, affine, in, plus, out);
          }
        });
      });
    });
  });
}

// Backward -------------------------------------------------------------------------------------------------

namespace {

/// Sums of g and of g (x - mean) over a chunk, g = dL/d(pre). Where the policy needs extra, g is kept in
/// dresidual and summed as it is rounded there: dx is made of that.
template <class Policy, class T, class A>
void sum_gradients(const Wide& wide, std::int64_t chunk, const Affine<A>& affine, const T* x, const T* dy,
                   const T* extra, T* dresidual, A* sums) {
  std::fill(sums, sums + 2 * wide.width, A(0));
  wide
      .for_each_group<kTogether<T, typename Policy::Op>>(
          chunk, [&](std::int64_t at, std::int64_t n, auto each) {
            const T* __restrict in = x + at, * __restrict grad = dy + at;
            const T* __restrict more = extra + (Policy::kExtra ? at : 0);
            T* __restrict keep = dresidual + (Policy::kExtra ? at : 0);
            const A *__restrict mean = affine.mean, *__restrict scale = affine.scale, *__restrict beta = affine.beta;
            A* __restrict s = sums, * __restrict q = sums + wide.width;
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
          });
}

/// dx of a chunk.
template <class Policy, class T, class A>
void write_dx(const Wide& wide, std::int64_t chunk, const Affine<A>& affine, const A* offsets,
              const A* slopes, const T* x, const T* dy, T* dx) {
  wide
      .for_each_group<kTogether<T, typename Policy::Op>>(
          chunk, [&](std::int64_t at, std::int64_t n, auto each) {
            const T* __restrict in = x + at, * __restrict grad = dy + at;
            T* __restrict out = dx + at;
            const A *__restrict mean = affine.mean, *__restrict scale = affine.scale, *__restrict beta = affine.beta;
            const A* __restrict offset = offsets, * __restrict slope = slopes;
#pragma GCC ivdep
            for (std::int64_t j = 0; j < n; ++j) {
              each([&](std::int64_t r) {
                const std::int64_t i = r * wide.width + j;
                const A d = A(in[i]) - mean[j];
                const A g = Policy::gradient(A(grad[i]), d, scale[j], beta[j], A(0));
                out[i] = T(batch_norm_dx(g, d, scale[j], slope[j], offset[j]));
              });
            }
          });
}

template <class A> void write_sums(const Sink& to, std::int64_t n, const double* from) {
  if (!to.tensor.defined()) return;
  A* out = to.tensor.data<A>();
  for (std::int64_t c = 0; c < n; ++c)
    out[c] = A(to.write == Write::overwrite ? from[c] : static_cast<double>(out[c]) + from[c]);
}

/// dgamma, dbeta, dresidual, and in `row` the number of values and the two sums of every channel.
template <class Sum, class T>
void run_sums(CpuContext& context, const BatchNormBackward& args, const Wide& wide,
              const Affine<Accumulate<T>>& affine, double* row) {
  using A = Accumulate<T>;
  const T *x = args.x.data<T>(), *dy = args.dy.data<T>();
  const T* extra = args.extra.defined() ? args.extra.data<T>() : nullptr;
  T* dresidual = args.extra.defined() ? args.dresidual.data<T>() : nullptr;
  const Sums<A> sums(context, wide);
  wide.for_each_chunk(context, [&](std::int64_t chunk) {
    vectorize([&] {
      sum_gradients<Sum>(wide, chunk, affine, x, dy, extra, dresidual, sums.slot(chunk));
      sums.fold(chunk);
    });
  });
  sums.total();
  row[0] = static_cast<double>(wide.rows);
  std::copy(sums.first(), sums.first() + 2 * wide.channels, row + 1);

  const Scratch memory = context.scratch(static_cast<std::size_t>(wide.channels) * sizeof(double));
  double* dgamma = memory.as<double>();
  const A* inverse = args.stats.data<A>() + wide.channels;
  for (std::int64_t c = 0; c < wide.channels; ++c)
    dgamma[c] = sums.second()[c] * static_cast<double>(inverse[c]);
  write_sums<A>(args.dgamma, wide.channels, dgamma);
  write_sums<A>(args.dbeta, wide.channels, sums.first());
}

/// dx, from the rows of all ranks.
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
    offset[c] = A(sums.first * share);
    slope[c] = A(sums.second * scale * scale * share);
  }
  wide.repeat(offset, [=](std::int64_t c) { return offset[c]; });
  wide.repeat(slope, [=](std::int64_t c) { return slope[c]; });
  const T* x = args.x.data<T>();
  const T* gradient = args.extra.defined() ? args.dresidual.data<T>() : args.dy.data<T>();
  T* dx = args.dx.data<T>();
  wide.for_each_chunk(context, [&](std::int64_t chunk) {
    vectorize([&] { write_dx<Dx>(wide, chunk, affine, offset, slope, x, gradient, dx); });
  });
}

/// f<Sum, Dx, T>(): how the two passes have g = dL/d(pre).
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

template <> void batch_norm_backward(CpuContext& context, const BatchNormBackward& args) {
  dispatch_passes(args, [&]<class Sum, class Dx, class T>() {
    const Wide wide(args.x);
    const Affine<Accumulate<T>> affine(context, wide, args.gamma, args.beta, args.stats);
    const Scratch memory = context.scratch(static_cast<std::size_t>(1 + 2 * wide.channels) * sizeof(double));
    run_sums<Sum, T>(context, args, wide, affine, memory.as<double>());
    run_dx<Dx, T>(context, args, wide, affine, memory.as<double>(), 1);
  });
}

template <>
void batch_norm_backward_sums(CpuContext& context, const BatchNormBackward& args, const Tensor& row) {
  dispatch_passes(args, [&]<class Sum, class Dx, class T>() {
    const Wide wide(args.x);
    const Affine<Accumulate<T>> affine(context, wide, args.gamma, args.beta, args.stats);
    run_sums<Sum, T>(context, args, wide, affine, row.data<double>());
  });
}

template <>
void batch_norm_backward_join(CpuContext& context, const BatchNormBackward& args, const Tensor& rows) {
  dispatch_passes(args, [&]<class Sum, class Dx, class T>() {
    const Wide wide(args.x);
    const Affine<Accumulate<T>> affine(context, wide, args.gamma, args.beta, args.stats);
    run_dx<Dx, T>(context, args, wide, affine, rows.data<double>(), rows.dim(0));
  });
}

}  // namespace athanor::kernels
