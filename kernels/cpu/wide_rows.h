#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/norm_ops.h"

// x is [R, C] in memory. A loop over C alone would be short for small C, and a loop down a column strided. So
// rows are read as wide rows of C * m elements, with m chosen to make them a few hundred long. Every
// per-channel value is repeated m times, and sums are folded from C * m to C at the end. All loops are then
// dense over a wide row, for any C. Four wide rows are processed together, so per-channel values are loaded
// once for all four.
//
// Sums: each chunk of wide rows (its size depends only on the shape) sums into its own slot in A, and slots
// are added in order in double. So the result depends neither on the number of threads nor on the vector
// width.

namespace athanor::kernels {

using cpu::From;
using cpu::kFastType;

inline constexpr std::int64_t kWide = 256;         // minimum elements of a wide row
inline constexpr std::int64_t kChunk = 32 * 1024;  // minimum elements of a chunk
inline constexpr int kRows = 4;                    // wide rows taken together

/// Calls f(0), f(1), ... f(N - 1), unrolled.
template <int N> struct Rows {
  template <class F> void operator()(const F& f) const {
    [&]<int... r>(std::integer_sequence<int, r...>) {
      (f(r), ...);
    }
    (std::make_integer_sequence<int, N>());
  }
};

/// Wide rows processed together: one if arithmetic, not memory, is the bottleneck (far less code).
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
  /// Calls f(chunk) for each, in parallel and compiled as in vectorize_if<kFast>(). From::end processes each
  /// thread's last chunk first: the previous op wrote it last, so it may still be in cache. The following
  /// pass then begins with the data read last here.
  template <bool kFast, From from, class F> void for_each_chunk(const CpuContext& context, const F& f) const {
    cpu::for_each_task<kFast, from>(context, chunks, 1, f);
  }
  /// to[c + i * channels] = value(c)
  template <class A, class F> void repeat(A* to, const F& value) const {
    for (std::int64_t c = 0; c < channels; ++c) to[c] = value(c);
    for (std::int64_t i = channels; i < width; ++i) to[i] = to[i - channels];
  }
};

/// Two sums per channel: a slot of 2 * width per chunk during summation, then [2, C] totals in double.
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
    cpu::vectorize_if<kFastType<A>>([&] {
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

/// Per-channel values repeated over a wide row: to subtract, multiply and add.
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

}  // namespace athanor::kernels
