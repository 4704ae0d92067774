#include "kernels/cuda/context.h"
#include "kernels/cuda/places.h"
#include "kernels/dispatch_size.h"
#include "kernels/interpolate_ops.h"

// A thread takes 16 bytes of channels at one place of the result. Neighbours read the same places of the
// other tensor, which come from the cache.

namespace athanor::kernels {
namespace {

using cuda::for_each_place;
using cuda::Places;
using cuda::Vec;

constexpr int kThreads = cuda::kPlaceThreads, kResident = cuda::kPlaceResident;

template <class A> struct Axes {
  PlacedAxis<A> h, w;

  explicit Axes(const InterpolateAxes& axes) : h(axes.h), w(axes.w) {}
};

/// Moves the bits of a place: 2 sizeof(T) bytes an element of y, less where several read the same input.
template <int V, class T>
__global__ void __launch_bounds__(kThreads, kResident)
    copy_nearest(const T* __restrict__ x, Axes<float> axes, Places<V> places, T* __restrict__ y) {
  for_each_place(places.count, [&](std::int64_t flat) {
    const auto at = places[flat];
    const std::int64_t h = Nearest::tap(axes.h, at.h).low, w = Nearest::tap(axes.w, at.w).low;
    const std::int64_t from = ((at.n * axes.h.inputs + h) * axes.w.inputs + w) * V;
    cuda::store<V>(y + flat * V, cuda::load<V>(x + from * places.channels.divisor() + at.c));
  });
}

/// The same bytes, and 11 FLOPs an element.
template <int V, class T, class A>
__global__ void __launch_bounds__(kThreads, kResident)
    mix_bilinear(const T* __restrict__ x, Axes<A> axes, Places<V> places, T* __restrict__ y) {
  for_each_place(places.count, [&](std::int64_t flat) {
    const auto at = places[flat];
    const auto rows = Bilinear::tap(axes.h, at.h), columns = Bilinear::tap(axes.w, at.w);
    const std::int64_t C = places.channels.divisor() * V, W = axes.w.inputs;
    const T *top = x + (at.n * axes.h.inputs + rows.low) * W * C + at.c,
            *bottom = x + (at.n * axes.h.inputs + rows.high) * W * C + at.c;
    const auto low_low = cuda::load<V>(top + columns.low * C),
               low_high = cuda::load<V>(top + columns.high * C),
               high_low = cuda::load<V>(bottom + columns.low * C),
               high_high = cuda::load<V>(bottom + columns.high * C);
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k)
      out[k] = T(mix(cuda::widen(low_low, k), cuda::widen(low_high, k), cuda::widen(high_low, k),
                     cuda::widen(high_high, k), rows.weight, columns.weight));
    cuda::store<V>(y + flat * V, out);
  });
}

/// dx of a place: reads dy as often as outputs share an input, mostly from the cache.
template <class Mode, int V, class T, class A>
__global__ void __launch_bounds__(kThreads, kResident)
    gather(const T* __restrict__ dy, Axes<A> axes, Places<V> places, T* __restrict__ dx) {
  for_each_place(places.count, [&](std::int64_t flat) {
    const auto at = places[flat];
    const Readers rows = readers<Mode>(axes.h, at.h), columns = readers<Mode>(axes.w, at.w);
    const std::int64_t C = places.channels.divisor() * V;
    A sum[V] = {};
    for (std::int64_t p = rows.begin; p < rows.end; ++p) {
      const A row = weight_of(Mode::tap(axes.h, p), at.h);
      for (std::int64_t q = columns.begin; q < columns.end; ++q) {
        const A weight = row * weight_of(Mode::tap(axes.w, q), at.w);
        const auto in = cuda::load<V>(dy + ((at.n * axes.h.outputs + p) * axes.w.outputs + q) * C + at.c);
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] += weight * cuda::widen(in, k);
      }
    }
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = T(sum[k]);
    cuda::store<V>(dx + flat * V, out);
  });
}

}  // namespace

void interpolate_forward(CudaContext& context, Interpolation mode, const InterpolateAxes& axes,
                         const Tensor& x, Out y) {
  if (y.numel() == 0) return;
  const auto launch = [&]<int V>(auto kernel, auto on, const auto* in, auto* out) {
    const Places<V> places(y);
    cuda::launch_over(context, "interpolate", places.count, kernel, in, on, places, out);
  };
  if (mode == Interpolation::nearest) {
    return dispatch_size(x.dtype(), [&]<class T>() {
      const T* in = reinterpret_cast<const T*>(x.raw_data());
      T* out = reinterpret_cast<T*>(y.raw_data());
      cuda::dispatch_width<T>(
          x.dim(3),
          [&]<int V>() { launch.template operator()<V>(copy_nearest<V, T>, Axes<float>(axes), in, out); }, in,
          out);
    });
  }
  dispatch_floating(x.dtype(), "interpolate", [&]<class T>() {
    using A = Accumulate<T>;
    const T* in = x.data<T>();
    T* out = y.data<T>();
    cuda::dispatch_width<T>(
        x.dim(3),
        [&]<int V>() { launch.template operator()<V>(mix_bilinear<V, T, A>, Axes<A>(axes), in, out); }, in,
        out);
  });
}

void interpolate_backward(CudaContext& context, Interpolation mode, const InterpolateAxes& axes,
                          const Tensor& dy, Out dx) {
  if (dx.numel() == 0) return;
  dispatch_floating(dx.dtype(), "interpolate", [&]<class T>() {
    using A = Accumulate<T>;
    const T* in = dy.data<T>();
    T* out = dx.data<T>();
    dispatch_interpolation(mode, [&]<class Mode>() {
      cuda::dispatch_width<T>(
          dx.dim(3),
          [&]<int V>() {
            const Places<V> places(dx);
            cuda::launch_over(context, "interpolate_backward", places.count, gather<Mode, V, T, A>, in,
                              Axes<A>(axes), places, out);
          },
          in, out);
    });
  });
}

}  // namespace athanor::kernels
