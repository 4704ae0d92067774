#include "kernels/cuda/architecture.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/max_gather.h"
#include "kernels/cuda/max_windows.h"
#include "kernels/pool.h"
#include "kernels/pool_ops.h"

// Channels lie side by side: a thread takes 16 bytes of them at one place of the result and reads what it
// needs of the other tensor, neighbouring windows from the cache. Everything is bound by memory, once the
// index arithmetic is kept small: no division by a number the launch knows.

namespace athanor::kernels {
namespace {

using cuda::for_each_place;
using cuda::launch_over;
using cuda::Maxima;
using cuda::Places;
using cuda::Vec;
using cuda::WindowReader;
using cuda::Windows;
using cuda::WindowScatter;

// On Blackwell ptxas would spill with 80 registers a thread.
constexpr int kThreads = cuda::kPlaceThreads, kResident = cuda::kPlaceResident - (cuda::kIsBlackwell ? 2 : 0);

// Max ------------------------------------------------------------------------------------------------------

/// y and index of one place: reads the window, (1 + overlap) sizeof(T) bytes per input, and writes sizeof(T)
/// and the index per output; 2 FLOPs per element of a window. kSide: see WindowReader.
template <int kSide, int V, class T, class I>
__global__ void __launch_bounds__(kThreads, kResident)
    max_forward(const T* __restrict__ x, WindowReader<kSide, V> reader, T* __restrict__ y,
                I* __restrict__ index) {
  for_each_place(reader.places.count, [&](std::int64_t flat) {
    const auto window = reader[flat];
    Maxima<V, Accumulate<T>> best(window.first);
    reader.template for_each<kSide>(x, window, [&](const Vec<T, V>& in, std::int32_t place) {
#pragma unroll
      for (int k = 0; k < V; ++k) best.offer(k, cuda::widen(in, k), place);
    });
    best.store(y + flat * V, index ? index + flat * V : nullptr);
  });
}

/// dx where windows neither overlap nor leave gaps. Moves 2 sizeof(T) bytes per input.
template <int V, class T, class I>
__global__ void __launch_bounds__(kThreads, kResident)
    max_scatter(const T* __restrict__ dy, const I* __restrict__ index, WindowScatter<V> scatter,
                T* __restrict__ dx) {
  for_each_place(scatter.places.count, [&](std::int64_t flat) {
    const auto gradient = cuda::load<V>(dy + flat * V);
    scatter.put(flat, cuda::load<V>(index + flat * V), gradient, dx);
  });
}

/// dx of one place, for every window over it: term(k, gradient, flat of the window, p, q), summed.
template <int V, class T, class Term>
__device__ __forceinline__ void gather(const T* __restrict__ dy, const Windows& windows,
                                       const Places<V>& places, std::int64_t flat, T* __restrict__ dx,
                                       const Term& term) {
  using A = Accumulate<T>;
  const auto at = places[flat];
  const auto rows = windows.h.cover(at.h), columns = windows.w.cover(at.w);
  A sum[V] = {};
  for (std::int64_t p = rows.begin; p < rows.end; ++p) {
    for (std::int64_t q = columns.begin; q < columns.end; ++q) {
      const std::int64_t window = (at.n * windows.h.axis.outputs + p) * windows.w.axis.outputs + q;
      const std::int64_t from = window * places.channels.divisor() * V + at.c;
      const auto gradient = cuda::load<V>(dy + from);
      const auto weigh = term(at, from, p, q);
#pragma unroll
      for (int k = 0; k < V; ++k) sum[k] += weigh(k, cuda::widen(gradient, k));
    }
  }
  Vec<T, V> out;
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = T(sum[k]);
  cuda::store<V>(dx + flat * V, out);
}

/// dx of any windows: reads dy and index as often as windows overlap, mostly from the cache.
template <int V, class T, class I>
__global__ void __launch_bounds__(kThreads, kResident)
    max_gather(const T* __restrict__ dy, const I* __restrict__ index, Windows windows, Places<V> places,
               T* __restrict__ dx) {
  using A = Accumulate<T>;
  for_each_place(places.count, [&](std::int64_t flat) {
    gather(dy, windows, places, flat, dx,
           [&](const auto& at, std::int64_t from, std::int64_t p, std::int64_t q) {
             const std::int64_t r =
                 tap_at(at.h + windows.h.axis.padding - p * windows.h.axis.stride, windows.h.axis.dilation);
             const std::int64_t s =
                 tap_at(at.w + windows.w.axis.padding - q * windows.w.axis.stride, windows.w.axis.dilation);
             const bool inside = r >= 0 && s >= 0;
             const I place = static_cast<I>(r * windows.w.axis.window + s);
             return [inside, place, won = cuda::load<V>(index + from)](int k, A g) {
               return inside && won[k] == place ? g : A(0);
             };
           });
  });
}

template <class T, class I>
void run_max(const CudaContext& context, const PoolWindows& windows, const Tensor& x, const Tensor& y,
             I* index) {
  const T* in = x.data<T>();
  T* out = y.data<T>();
  const auto run = [&]<int V>() {
    const auto launch = [&]<int kSide>() {
      const WindowReader<kSide, V> reader(windows, y);
      launch_over(context, "max_pool2d", reader.places.count, max_forward<kSide, V, T, I>, in, reader, out,
                  index);
    };
    if constexpr (V > 1 && sizeof(I) == 1) {
      if (cuda::square_windows(windows, 2)) return launch.template operator()<2>();
      if (cuda::square_windows(windows, 3)) return launch.template operator()<3>();
    }
    launch.template operator()<0>();
  };
  cuda::dispatch_width<T>(x.shape()[3], run, in, out, index);
}

template <class T, class I>
void run_max_backward(const CudaContext& context, const PoolWindows& windows, const Tensor& dy,
                      const Tensor& index, const Tensor& dx) {
  const T* gradient = dy.data<T>();
  const I* won = index.data<I>();
  T* out = dx.data<T>();
  const auto run = [&]<int V>() {
    if (side_by_side(windows)) {
      const WindowScatter<V> scatter(windows, dy);
      return launch_over(context, "max_pool2d_backward", scatter.places.count, max_scatter<V, T, I>, gradient,
                         won, scatter, out);
    }
    if (few_windows(windows, dx)) {
      const cuda::FewWindowsGather<V> gather(windows, dx);
      return launch_over(context, "max_pool2d_backward", gather.places.count, cuda::max_gather_few<V, T, I>,
                         gradient, won, gather, out);
    }
    const Places<V> places(dx);
    launch_over(context, "max_pool2d_backward", places.count, max_gather<V, T, I>, gradient, won,
                Windows(windows), places, out);
  };
  cuda::dispatch_width<T>(dx.shape()[3], run, gradient, won, out);
}

template <class I>
__global__ void __launch_bounds__(kThreads)
    find_positions(const I* index, PoolWindows windows, Places<1> places, std::int64_t* positions) {
  for_each_place(places.count, [&](std::int64_t flat) {
    const auto at = places[flat];
    positions[flat] = position_of(windows, at.h, at.w, index[flat]);
  });
}

}  // namespace

void max_pool_positions(CudaContext& context, const PoolWindows& windows, const Tensor& index,
                        Out positions) {
  if (index.numel() == 0) return;
  dispatch_index(index, [&]<class I>() {
    const Places<1> places(index);
    launch_over(context, "max_pool2d_positions", places.count, find_positions<I>, index.data<I>(), windows,
                places, positions.data<std::int64_t>());
  });
}

void max_pool_forward(CudaContext& context, const PoolWindows& windows, const Tensor& x, Out y, Out index) {
  if (y.numel() == 0) return;
  dispatch_floating(x.dtype(), "max_pool2d", [&]<class T>() {
    if (!index.defined()) return run_max<T, std::uint8_t>(context, windows, x, y, nullptr);
    dispatch_index(index, [&]<class I>() { run_max<T>(context, windows, x, y, index.data<I>()); });
  });
}

void max_pool_backward(CudaContext& context, const PoolWindows& windows, const Tensor& dy,
                       const Tensor& index, Out dx) {
  if (dx.numel() == 0) return;
  dispatch_floating(dx.dtype(), "max_pool2d", [&]<class T>() {
    dispatch_index(index, [&]<class I>() { run_max_backward<T, I>(context, windows, dy, index, dx); });
  });
}

// Average --------------------------------------------------------------------------------------------------

namespace {

/// Moves (1 + overlap) sizeof(T) bytes per input and sizeof(T) per output; 1 FLOP per element of a window.
template <int V, class T>
__global__ void __launch_bounds__(kThreads, kResident)
    average_forward(const T* __restrict__ x, Windows windows, Places<V> places, T* __restrict__ y) {
  using A = Accumulate<T>;
  for_each_place(places.count, [&](std::int64_t flat) {
    const auto at = places[flat];
    const auto rows = windows.h.window(at.h, windows.count_padding);
    const auto columns = windows.w.window(at.w, windows.count_padding);
    const std::int64_t C = places.channels.divisor() * V, W = windows.w.axis.inputs;
    A sum[V] = {};
    for (std::int64_t h = rows.begin; h < rows.end; ++h) {
      const T* from = x + ((at.n * windows.h.axis.inputs + h) * W + columns.begin) * C + at.c;
      const int width = static_cast<int>(columns.end - columns.begin);
#pragma unroll 4
      for (int w = 0; w < width; ++w, from += C) {
        const auto in = cuda::load<V>(from);
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] += cuda::widen(in, k);
      }
    }
    const A count = A(rows.count * columns.count);
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = T(sum[k] / count);
    cuda::store<V>(y + flat * V, out);
  });
}

template <int V, class T>
__global__ void __launch_bounds__(kThreads, kResident)
    average_gather(const T* __restrict__ dy, Windows windows, Places<V> places, T* __restrict__ dx) {
  using A = Accumulate<T>;
  for_each_place(places.count, [&](std::int64_t flat) {
    gather(dy, windows, places, flat, dx, [&](const auto&, std::int64_t, std::int64_t p, std::int64_t q) {
      const std::int64_t rows = windows.h.window(p, windows.count_padding).count;
      const A share = A(1) / A(rows * windows.w.window(q, windows.count_padding).count);
      return [share](int, A g) { return share * g; };
    });
  });
}

}  // namespace

void avg_pool_forward(CudaContext& context, const PoolWindows& windows, const Tensor& x, Out y) {
  if (y.numel() == 0) return;
  dispatch_floating(x.dtype(), "avg_pool2d", [&]<class T>() {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    const auto run = [&]<int V>() {
      const Places<V> places(y);
      launch_over(context, "avg_pool2d", places.count, average_forward<V, T>, in, Windows(windows), places,
                  out);
    };
    cuda::dispatch_width<T>(x.shape()[3], run, in, out);
  });
}

void avg_pool_backward(CudaContext& context, const PoolWindows& windows, const Tensor& dy, Out dx) {
  if (dx.numel() == 0) return;
  dispatch_floating(dx.dtype(), "avg_pool2d", [&]<class T>() {
    const T* gradient = dy.data<T>();
    T* out = dx.data<T>();
    const auto run = [&]<int V>() {
      const Places<V> places(dx);
      launch_over(context, "avg_pool2d_backward", places.count, average_gather<V, T>, gradient,
                  Windows(windows), places, out);
    };
    cuda::dispatch_width<T>(dx.shape()[3], run, gradient, out);
  });
}

}  // namespace athanor::kernels
