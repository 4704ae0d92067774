#include "kernels/interpolate.h"

#include <cstring>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/interpolate_ops.h"
#include "kernels/scratch.h"

// Threads share the rows of the result; channels are contiguous, so the innermost loop runs over them.

namespace athanor::kernels {
namespace {

using cpu::for_each_task;

std::int64_t rows_per_thread(const Tensor& result) {
  return cpu::grain_of(result.dim(2) * result.dim(3));
}

void copy_nearest(CpuContext& context, const InterpolateAxes& axes, const Tensor& x, const Tensor& y) {
  const std::size_t pixel = static_cast<std::size_t>(x.dim(3)) * size_of(x.dtype());
  const std::byte* in = x.raw_data();
  std::byte* out = y.raw_data();
  const PlacedAxis<float> height(axes.h), width(axes.w);
  for_each_task<false>(context, y.dim(0) * axes.h.outputs, rows_per_thread(y), [&](std::int64_t row) {
    const std::int64_t n = row / axes.h.outputs, h = Nearest::tap(height, row % axes.h.outputs).low;
    for (std::int64_t q = 0; q < axes.w.outputs; ++q) {
      const std::int64_t w = Nearest::tap(width, q).low;
      const auto from = static_cast<std::size_t>((n * axes.h.inputs + h) * axes.w.inputs + w),
                 to = static_cast<std::size_t>(row * axes.w.outputs + q);
      std::memcpy(out + to * pixel, in + from * pixel, pixel);
    }
  });
}

template <class T>
void mix_bilinear(CpuContext& context, const InterpolateAxes& axes, const Tensor& x, const Tensor& y) {
  using A = Accumulate<T>;
  const std::int64_t C = x.dim(3), W = axes.w.inputs;
  const T* in = x.data<T>();
  T* out = y.data<T>();
  const PlacedAxis<A> height(axes.h), width(axes.w);
  const std::int64_t rows = y.dim(0) * axes.h.outputs;
  for_each_task<cpu::kFastType<T>>(context, rows, rows_per_thread(y), [&](std::int64_t row) {
    const auto from = Bilinear::tap(height, row % axes.h.outputs);
    const T* image = in + row / axes.h.outputs * axes.h.inputs * W * C;
    const T *top = image + from.low * W * C, *bottom = image + from.high * W * C;
    for (std::int64_t q = 0; q < axes.w.outputs; ++q) {
      const auto columns = Bilinear::tap(width, q);
      const std::int64_t low = columns.low * C, high = columns.high * C;
      T* __restrict to = out + (row * axes.w.outputs + q) * C;
      for (std::int64_t c = 0; c < C; ++c)
        to[c] = T(mix(A(top[low + c]), A(top[high + c]), A(bottom[low + c]), A(bottom[high + c]), from.weight,
                      columns.weight));
    }
  });
}

/// The outputs that read each input of an axis, with its weights in them, computed once per call. Only sums
/// over channels remain per pixel.
template <class A> struct ReadTable {
  struct Entry {
    Readers outputs;
    const A* weights;  ///< one per output
  };
  Entry* entries;

  /// An output reads at most two inputs; a single output counts as a reader of every input.
  static std::size_t bytes(const PlacedAxis<A>& axis) {
    return static_cast<std::size_t>(axis.inputs) * sizeof(Entry) +
           static_cast<std::size_t>(2 * axis.outputs + axis.inputs + 1) / 2 * 2 * sizeof(A);
  }
  template <class Mode> static ReadTable make(const PlacedAxis<A>& axis, std::byte* memory) {
    const ReadTable table{reinterpret_cast<Entry*>(memory)};
    auto* weight = reinterpret_cast<A*>(table.entries + axis.inputs);
    for (std::int64_t i = 0; i < axis.inputs; ++i) {
      const Readers outputs = readers<Mode>(axis, i);
      table.entries[i] = {outputs, weight};
      for (std::int64_t o = outputs.begin; o < outputs.end; ++o) *weight++ = weight_of(Mode::tap(axis, o), i);
    }
    return table;
  }
};

/// dx of some channels of one pixel: the sum over its readers of dy times its weight there. dy is one
/// image's.
template <std::int64_t kLanes, class T, class A>
void sum_readers(const typename ReadTable<A>::Entry& rows, const typename ReadTable<A>::Entry& columns,
                 const T* __restrict dy, std::int64_t width, std::int64_t C, std::int64_t lanes,
                 T* __restrict dx) {
  A sum[kLanes] = {};
  for (std::int64_t p = rows.outputs.begin; p < rows.outputs.end; ++p) {
    for (std::int64_t q = columns.outputs.begin; q < columns.outputs.end; ++q) {
      const A weight = rows.weights[p - rows.outputs.begin] * columns.weights[q - columns.outputs.begin];
      const T* __restrict from = dy + (p * width + q) * C;
      for (std::int64_t l = 0; l < lanes; ++l) sum[l] += weight * A(from[l]);
    }
  }
  for (std::int64_t l = 0; l < lanes; ++l) dx[l] = T(sum[l]);
}

template <class Mode, class T>
void gather(CpuContext& context, const InterpolateAxes& axes, const Tensor& dy, const Tensor& dx) {
  using A = Accumulate<T>;
  constexpr std::int64_t kLanes = 32;
  const PlacedAxis<A> height(axes.h), width(axes.w);
  const std::size_t half = ReadTable<A>::bytes(height);
  const Scratch memory = context.scratch(half + ReadTable<A>::bytes(width));
  const auto rows = ReadTable<A>::template make<Mode>(height, memory.as<std::byte>());
  const auto columns = ReadTable<A>::template make<Mode>(width, memory.as<std::byte>() + half);
  const std::int64_t C = dx.dim(3), H = axes.h.inputs, W = axes.w.inputs, Q = axes.w.outputs;
  const std::int64_t image = axes.h.outputs * Q * C;
  const T* in = dy.data<T>();
  T* out = dx.data<T>();
  for_each_task<cpu::kFastType<T>>(context, dx.dim(0) * H, rows_per_thread(dx), [&](std::int64_t row) {
    const T* from = in + row / H * image;
    for (std::int64_t w = 0; w < W; ++w) {
      const auto &above = rows.entries[row % H], &beside = columns.entries[w];
      T* to = out + (row * W + w) * C;
      std::int64_t c = 0;
      for (; c + kLanes <= C; c += kLanes)  // a constant number of lanes stays in registers
        sum_readers<kLanes, T, A>(above, beside, from + c, Q, C, kLanes, to + c);
      if (c < C) sum_readers<kLanes, T, A>(above, beside, from + c, Q, C, C - c, to + c);
    }
  });
}

}  // namespace

void interpolate_forward(CpuContext& context, Interpolation mode, const InterpolateAxes& axes,
                         const Tensor& x, Out y) {
  if (y.numel() == 0) return;  // it may have no memory
  if (mode == Interpolation::nearest) return copy_nearest(context, axes, x, y);
  dispatch_floating(x.dtype(), "interpolate", [&]<class T>() { mix_bilinear<T>(context, axes, x, y); });
}

void interpolate_backward(CpuContext& context, Interpolation mode, const InterpolateAxes& axes,
                          const Tensor& dy, Out dx) {
  dispatch_floating(dx.dtype(), "interpolate", [&]<class T>() {
    dispatch_interpolation(mode, [&]<class Mode>() { gather<Mode, T>(context, axes, dy, dx); });
  });
}

}  // namespace athanor::kernels
