#include <limits>

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/max_gather.h"
#include "kernels/pool.h"
#include "kernels/pool_ops.h"

// Channels lie side by side: a thread takes 16 bytes of them at one place of the result and reads what it
// needs of the other tensor, neighbouring windows from the cache. Everything is bound by memory, once the
// index arithmetic is kept small: no division by a number the launch knows.

namespace athanor::kernels {
namespace {

using cuda::Divider;
using cuda::for_each_place;
using cuda::launch_over;
using cuda::Places;
using cuda::Vec;

// On Blackwell ptxas would spill with 80 registers a thread.
constexpr int kThreads = cuda::kPlaceThreads, kResident = cuda::kPlaceResident - (cuda::kIsBlackwell ? 2 : 0);

/// The windows along one axis, for kernels.
struct Axis {
  PoolAxis axis;
  std::int64_t extent;
  Divider stride, inputs, outputs;

  explicit Axis(const PoolAxis& of)
      : axis(of), extent(of.extent()), stride(of.stride), inputs(of.inputs), outputs(of.outputs) {}

  struct Window {
    std::int64_t start, begin, end, count;  // first input, the same clipped, elements averaged over
  };
  __device__ __forceinline__ Window window(std::int64_t i, bool count_padding) const {
    Window w;
    std::int64_t end;
    if (axis.adaptive) {
      w.start = outputs.divide(i * axis.inputs).whole;
      end = outputs.divide((i + 1) * axis.inputs + axis.outputs - 1).whole;
    } else {
      w.start = i * axis.stride - axis.padding;
      end = std::min(w.start + extent, axis.inputs + axis.padding);
    }
    w.begin = std::max<std::int64_t>(w.start, 0);
    w.end = std::min(end, axis.inputs);
    w.count = count_padding ? end - w.start : w.end - w.begin;
    return w;
  }

  struct Cover {
    std::int64_t begin, end;  // the outputs whose windows hold an input
  };
  __device__ __forceinline__ Cover cover(std::int64_t at) const {
    if (axis.adaptive) {
      return {inputs.divide(at * axis.outputs).whole, inputs.divide((at + 1) * axis.outputs - 1).whole + 1};
    }
    const std::int64_t last = at + axis.padding, before = last - extent;
    return {before < 0 ? 0 : stride.divide(before).whole + 1,
            std::min(stride.divide(last).whole + 1, axis.outputs)};
  }
};

struct Windows {
  Axis h, w;
  bool count_padding;

  explicit Windows(const PoolWindows& windows)
      : h(windows.h), w(windows.w), count_padding(windows.count_padding) {}
};

// Max ------------------------------------------------------------------------------------------------------

/// y and index of one place: reads the window, (1 + overlap) sizeof(T) bytes per input, and writes sizeof(T)
/// and the index per output; 2 FLOPs per element of a window. kSide: both sides of the window, without a
/// dilation, or 0 for any.
template <int kSide, int V, class T, class I>
__global__ void __launch_bounds__(kThreads, kResident)
    max_forward(const T* __restrict__ x, Windows windows, Places<V> places, T* __restrict__ y,
                I* __restrict__ index) {
  using A = Accumulate<T>;
  for_each_place(places.count, [&](std::int64_t flat) {
    const auto at = places[flat];
    const auto rows = windows.h.window(at.h, false), columns = windows.w.window(at.w, false);
    const std::int64_t H = windows.h.axis.inputs, W = windows.w.axis.inputs;
    const std::int64_t C = places.channels.divisor() * V, window_w = windows.w.axis.window;
    const T* from = x + ((at.n * H + rows.start) * W + columns.start) * C + at.c;
    const std::int64_t down = kSide > 0 ? 1 : windows.h.axis.dilation,
                       across = kSide > 0 ? 1 : windows.w.axis.dilation;
    const std::int64_t top = first_tap(rows.start, down), left = first_tap(columns.start, across);
    const auto first = static_cast<std::int32_t>(top * window_w + left);
    Best<A> best[V];
#pragma unroll
    for (int k = 0; k < V; ++k) {
      best[k].value = -std::numeric_limits<A>::infinity();
      best[k].at = first;
    }
    if constexpr (kSide > 0) {
      Vec<T, V> in[kSide][kSide];
#pragma unroll
      for (int r = 0; r < kSide; ++r) {
#pragma unroll
        for (int s = 0; s < kSide; ++s) {
          const std::int64_t h = rows.start + r, w = columns.start + s;
          if (h >= 0 && h < H && w >= 0 && w < W) in[r][s] = cuda::load<V>(from + (r * W + s) * C);
        }
      }
#pragma unroll
      for (int r = 0; r < kSide; ++r) {
#pragma unroll
        for (int s = 0; s < kSide; ++s) {
          const std::int64_t h = rows.start + r, w = columns.start + s;
          if (h < 0 || h >= H || w < 0 || w >= W) continue;
#pragma unroll
          for (int k = 0; k < V; ++k) best[k].offer(cuda::widen(in[r][s], k), r * kSide + s);
        }
      }
    } else {
      for (std::int64_t r = top; rows.start + r * down < rows.end; ++r) {
        for (std::int64_t s = left; columns.start + s * across < columns.end; ++s) {
          const auto in = cuda::load<V>(from + (r * down * W + s * across) * C);
#pragma unroll
          for (int k = 0; k < V; ++k)
            best[k].offer(cuda::widen(in, k), static_cast<std::int32_t>(r * window_w + s));
        }
      }
    }
    Vec<T, V> value;
    Vec<I, V> won;
#pragma unroll
    for (int k = 0; k < V; ++k) value[k] = T(best[k].value), won[k] = static_cast<I>(best[k].at);
    cuda::store<V>(y + flat * V, value);
    if (index) cuda::store<V>(index + flat * V, won);
  });
}

/// dx where windows neither overlap nor leave gaps: a place of dy fills its window, and the last ones what
/// lies beyond. Moves 2 sizeof(T) bytes per input.
template <int V, class T, class I>
__global__ void __launch_bounds__(kThreads, kResident)
    max_scatter(const T* __restrict__ dy, const I* __restrict__ index, Windows windows, Places<V> places,
                T* __restrict__ dx) {
  for_each_place(places.count, [&](std::int64_t flat) {
    const auto at = places[flat];
    const PoolAxis &rows = windows.h.axis, &columns = windows.w.axis;
    const std::int64_t C = places.channels.divisor() * V;
    const auto gradient = cuda::load<V>(dy + flat * V);
    const auto won = cuda::load<V>(index + flat * V);
    const std::int64_t h0 = at.h * rows.stride, w0 = at.w * columns.stride;
    const std::int64_t height = at.h + 1 < rows.outputs ? rows.stride : rows.inputs - h0;
    const std::int64_t width = at.w + 1 < columns.outputs ? columns.stride : columns.inputs - w0;
    for (std::int64_t r = 0; r < height; ++r) {
      for (std::int64_t s = 0; s < width; ++s) {
        const bool inside = r < rows.window && s < columns.window;
        const I place = static_cast<I>(r * columns.window + s);
        Vec<T, V> out;
#pragma unroll
        for (int k = 0; k < V; ++k) out[k] = inside && won[k] == place ? gradient[k] : T(0.0f);
        cuda::store<V>(dx + (((at.n * rows.inputs + h0 + r) * columns.inputs) + w0 + s) * C + at.c, out);
      }
    }
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

bool disjoint(const PoolAxis& axis) {
  return axis.window == axis.stride && axis.dilation == 1 && axis.padding == 0 &&
         axis.outputs * axis.stride <= axis.inputs;
}

template <class T, class I>
void run_max(const CudaContext& context, const PoolWindows& windows, const Tensor& x, const Tensor& y,
             I* index) {
  const T* in = x.data<T>();
  T* out = y.data<T>();
  const auto run = [&]<int V>() {
    auto kernel = max_forward<0, V, T, I>;
    if constexpr (V > 1 && sizeof(I) == 1) {
      const bool dilated = windows.h.dilation != 1 || windows.w.dilation != 1;
      if (windows.h.window == windows.w.window && !dilated) {
        if (windows.h.window == 2) kernel = max_forward<2, V, T, I>;
        if (windows.h.window == 3) kernel = max_forward<3, V, T, I>;
      }
    }
    const Places<V> places(y);
    launch_over(context, "max_pool2d", places.count, kernel, in, Windows(windows), places, out, index);
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
    const bool scatters = disjoint(windows.h) && disjoint(windows.w);
    const Places<V> places(scatters ? dy : dx);
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (!scatters && cuda::FewWindows::fit(windows.h) && cuda::FewWindows::fit(windows.w) &&
        std::max(dx.numel(), dy.numel()) <= kMost) {
      return launch_over(context, "max_pool2d_backward", places.count, cuda::max_gather_few<V, T, I>,
                         gradient, won, cuda::FewWindows(windows.h), cuda::FewWindows(windows.w), places,
                         out);
    }
    launch_over(context, "max_pool2d_backward", places.count,
                scatters ? max_scatter<V, T, I> : max_gather<V, T, I>, gradient, won, Windows(windows),
                places, out);
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
