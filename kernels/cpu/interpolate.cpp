#include "kernels/interpolate.h"

#include <cstring>

#include "kernels/cpu/iterate.h"
#include "kernels/interpolate_ops.h"

// Threads share the rows of the result; channels lie side by side, so the innermost loop runs over them.

namespace athanor::kernels {
namespace {

using cpu::parallel_for;
using cpu::vectorize_if;

std::int64_t rows_per_thread(const Tensor& result) {
  return std::max<std::int64_t>(1, cpu::kGrain / std::max<std::int64_t>(result.dim(2) * result.dim(3), 1));
}

void copy_nearest(CpuContext& context, const InterpolateAxes& axes, const Tensor& x, const Tensor& y) {
  const std::size_t pixel = static_cast<std::size_t>(x.dim(3)) * size_of(x.dtype());
  const std::byte* in = x.raw_data();
  std::byte* out = y.raw_data();
  const PlacedAxis<float> height(axes.h), width(axes.w);
  parallel_for(
      context, y.dim(0) * axes.h.outputs, rows_per_thread(y), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t n = row / axes.h.outputs, h = Nearest::tap(height, row % axes.h.outputs).low;
          for (std::int64_t q = 0; q < axes.w.outputs; ++q) {
            const std::int64_t w = Nearest::tap(width, q).low;
            const auto from = static_cast<std::size_t>((n * axes.h.inputs + h) * axes.w.inputs + w),
                       to = static_cast<std::size_t>(row * axes.w.outputs + q);
            std::memcpy(out + to * pixel, in + from * pixel, pixel);
          }
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
  parallel_for(context, y.dim(0) * axes.h.outputs, rows_per_thread(y),
               [&](std::int64_t begin, std::int64_t end) {
                 vectorize_if<cpu::kFastType<T>>([&] {
                   for (std::int64_t row = begin; row < end; ++row) {
                     const auto rows = Bilinear::tap(height, row % axes.h.outputs);
                     const T* image = in + row / axes.h.outputs * axes.h.inputs * W * C;
                     const T *top = image + rows.low * W * C, *bottom = image + rows.high * W * C;
                     for (std::int64_t q = 0; q < axes.w.outputs; ++q) {
                       const auto columns = Bilinear::tap(width, q);
                       const std::int64_t low = columns.low * C, high = columns.high * C;
                       T* __restrict to = out + (row * axes.w.outputs + q) * C;
                       for (std::int64_t c = 0; c < C; ++c)
                         to[c] = T(mix(A(top[low + c]), A(top[high + c]), A(bottom[low + c]),
                                       A(bottom[high + c]), rows.weight, columns.weight));
                     }
                   }
                 });
               });
}

constexpr std::int64_t kLanes = 32;  // channels summed at a time

/// dx of one pixel: of every output that reads it, dy times its weight there. dy is one image.
template <class Mode, class T, class A>
void gather(const PlacedAxis<A>& height, const PlacedAxis<A>& width, const T* __restrict dy, std::int64_t C,
            std::int64_t h, std::int64_t w, T* __restrict dx) {
  const Readers rows = readers<Mode>(height, h), columns = readers<Mode>(width, w);
  for (std::int64_t first = 0; first < C; first += kLanes) {
    const std::int64_t lanes = std::min(kLanes, C - first);
    A sum[kLanes] = {};
    for (std::int64_t p = rows.begin; p < rows.end; ++p) {
      const A row = weight_of(Mode::tap(height, p), h);
      for (std::int64_t q = columns.begin; q < columns.end; ++q) {
        const A weight = row * weight_of(Mode::tap(width, q), w);
        const T* __restrict from = dy + (p * width.outputs + q) * C + first;
        for (std::int64_t l = 0; l < lanes; ++l) sum[l] += weight * A(from[l]);
      }
    }
    for (std::int64_t l = 0; l < lanes; ++l) dx[first + l] = T(sum[l]);
  }
}

}  // namespace

template <>
void interpolate_forward(CpuContext& context, Interpolation mode, const InterpolateAxes& axes,
                         const Tensor& x, const Tensor& y) {
  if (y.numel() == 0) return;  // and perhaps no memory
  if (mode == Interpolation::nearest) return copy_nearest(context, axes, x, y);
  dispatch_floating(x.dtype(), "interpolate", [&]<class T>() { mix_bilinear<T>(context, axes, x, y); });
}

template <>
void interpolate_backward(CpuContext& context, Interpolation mode, const InterpolateAxes& axes,
                          const Tensor& dy, const Tensor& dx) {
  const std::int64_t C = dx.dim(3), image = axes.h.outputs * axes.w.outputs * C;
  dispatch_floating(dx.dtype(), "interpolate", [&]<class T>() {
    const T* in = dy.data<T>();
    T* out = dx.data<T>();
    const PlacedAxis<Accumulate<T>> height(axes.h), width(axes.w);
    dispatch_interpolation(mode, [&]<class Mode>() {
      parallel_for(
          context, dx.dim(0) * axes.h.inputs, rows_per_thread(dx), [&](std::int64_t begin, std::int64_t end) {
            vectorize_if<cpu::kFastType<T>>([&] {
              for (std::int64_t row = begin; row < end; ++row) {
                const std::int64_t n = row / axes.h.inputs, h = row % axes.h.inputs;
                for (std::int64_t w = 0; w < axes.w.inputs; ++w)
                  gather<Mode>(height, width, in + n * image, C, h, w, out + (row * axes.w.inputs + w) * C);
              }
            });
          });
    });
  });
}

}  // namespace athanor::kernels
