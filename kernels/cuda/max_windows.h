#pragma once

#include <limits>

#include "kernels/cuda/places.h"
#include "kernels/pool_ops.h"

// Windows as kernels of pooling see them, the largest elements in them, and their gradients.

namespace athanor::cuda {

/// The windows along one axis, for kernels.
struct WindowAxis {
  kernels::PoolAxis axis;
  std::int64_t extent;
  Divider stride, inputs, outputs;

  explicit WindowAxis(const kernels::PoolAxis& of)
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
  WindowAxis h, w;
  bool count_padding;

  explicit Windows(const kernels::PoolWindows& windows)
      : h(windows.h), w(windows.w), count_padding(windows.count_padding) {}
};

/// Whether windows have `side` elements along both axes, side by side.
inline bool square_windows(const kernels::PoolWindows& windows, std::int64_t side) {
  return windows.h.window == side && windows.w.window == side && windows.h.dilation == 1 &&
         windows.w.dilation == 1;
}

/// Reads windows of x, V channels each, that belong to places of the pooled tensor. kSide: both sides of
/// every window, without a dilation (square_windows()), or 0 for any.
template <int kSide, int V> struct WindowReader {
  Windows windows;
  Places<V> places;  ///< of the pooled tensor

  WindowReader(const kernels::PoolWindows& of, const Tensor& pooled) : windows(of), places(pooled) {}

  struct Window {
    std::int64_t from;  ///< its element (0, 0), which may lie in the padding
    WindowAxis::Window rows, columns;
    std::int64_t down, across;  ///< steps from an element to the next
    std::int64_t top, left;     ///< the first that lies in x
    std::int32_t first;         ///< its position
  };
  __device__ __forceinline__ Window operator[](std::int64_t flat) const {
    const auto at = places[flat];
    Window window;
    window.rows = windows.h.window(at.h, false), window.columns = windows.w.window(at.w, false);
    window.down = kSide > 0 ? 1 : windows.h.axis.dilation;
    window.across = kSide > 0 ? 1 : windows.w.axis.dilation;
    window.top = kernels::first_tap(window.rows.start, window.down);
    window.left = kernels::first_tap(window.columns.start, window.across);
    window.first = static_cast<std::int32_t>(window.top * windows.w.axis.window + window.left);
    window.from =
        ((at.n * windows.h.axis.inputs + window.rows.start) * windows.w.axis.inputs + window.columns.start) *
            channels() +
        at.c;
    return window;
  }

  /// Calls f(vector, position) for its elements that lie in x, row by row. Asks for kRows rows at once, a
  /// divisor of kSide; without kSide for one element.
  template <int kRows, class T, class F>
  __device__ __forceinline__ void for_each(const T* x, const Window& window, const F& f) const {
    const std::int64_t H = windows.h.axis.inputs, W = windows.w.axis.inputs, C = channels();
    const T* from = x + window.from;
    if constexpr (kSide > 0) {
      const auto inside = [&](int r, int s) {
        const std::int64_t h = window.rows.start + r, w = window.columns.start + s;
        return h >= 0 && h < H && w >= 0 && w < W;
      };
#pragma unroll
      for (int top = 0; top < kSide; top += kRows) {
        Vec<T, V> in[kRows][kSide];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int s = 0; s < kSide; ++s) {
            if (inside(top + r, s)) in[r][s] = load<V>(from + ((top + r) * W + s) * C);
          }
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int s = 0; s < kSide; ++s) {
            if (inside(top + r, s)) f(in[r][s], (top + r) * kSide + s);
          }
        }
      }
    } else {
      for (std::int64_t r = window.top; window.rows.start + r * window.down < window.rows.end; ++r) {
        for (std::int64_t s = window.left; window.columns.start + s * window.across < window.columns.end; ++s)
          f(load<V>(from + (r * window.down * W + s * window.across) * C),
            static_cast<std::int32_t>(r * windows.w.axis.window + s));
      }
    }
  }

 private:
  __device__ __forceinline__ std::int64_t channels() const {
    return places.channels.divisor() * V;
  }
};

/// The largest elements of a window, of V channels.
template <int V, class A> struct Maxima {
  kernels::Best<A> best[V];

  /// `first`: the position of the first element that lies in x.
  __device__ __forceinline__ explicit Maxima(std::int32_t first) {
#pragma unroll
    for (int k = 0; k < V; ++k) best[k] = {-std::numeric_limits<A>::infinity(), first};
  }
  __device__ __forceinline__ void offer(int k, A value, std::int32_t place) {
    best[k].offer(value, place);
  }
  template <class T> __device__ __forceinline__ Vec<T, V> values() const {
    Vec<T, V> values;
#pragma unroll
    for (int k = 0; k < V; ++k) values[k] = T(best[k].value);
    return values;
  }
  /// Writes them, and their positions if `index` is not null.
  template <class T, class I> __device__ __forceinline__ void store(T* y, I* index) const {
    cuda::store<V>(y, values<T>());
    if (!index) return;
    Vec<I, V> won;
#pragma unroll
    for (int k = 0; k < V; ++k) won[k] = static_cast<I>(best[k].at);
    cuda::store<V>(index, won);
  }
};

/// The gradient where side_by_side(): a place of the pooled tensor fills its window, and the last ones what
/// lies beyond.
template <int V> struct WindowScatter {
  kernels::PoolAxis rows, columns;
  Places<V> places;  ///< of the pooled tensor

  WindowScatter(const kernels::PoolWindows& windows, const Tensor& pooled)
      : rows(windows.h), columns(windows.w), places(pooled) {}

  /// dx of the window at a place, whose maxima are at `won` and have this gradient.
  template <class T, class I>
  __device__ __forceinline__ void put(std::int64_t flat, const Vec<I, V>& won, const Vec<T, V>& gradient,
                                      T* dx) const {
    const auto at = places[flat];
    const std::int64_t C = places.channels.divisor() * V;
    const std::int64_t h0 = at.h * rows.stride, w0 = at.w * columns.stride;
    const auto height = static_cast<int>(at.h + 1 < rows.outputs ? rows.stride : rows.inputs - h0),
               width = static_cast<int>(at.w + 1 < columns.outputs ? columns.stride : columns.inputs - w0);
    T* to = dx + ((at.n * rows.inputs + h0) * columns.inputs + w0) * C + at.c;
    for (int r = 0; r < height; ++r, to += (columns.inputs - width) * C) {
      for (int s = 0; s < width; ++s, to += C) {
        const bool inside = r < rows.window && s < columns.window;
        const I place = static_cast<I>(r * columns.window + s);
        Vec<T, V> out;
#pragma unroll
        for (int k = 0; k < V; ++k) out[k] = inside && won[k] == place ? gradient[k] : T(0.0f);
        store<V>(to, out);
      }
    }
  }
};

}  // namespace athanor::cuda
