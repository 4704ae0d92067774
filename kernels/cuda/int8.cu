#include "kernels/cuda/context.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/max_windows.h"
#include "kernels/int8.h"
#include "kernels/int8_ops.h"

// 8-bit ops other than products: bound by memory, a quarter of f32's bytes. Pools take 16 channels a thread.

namespace athanor::kernels {
namespace {

using cuda::for_each_place;
using cuda::kPlaceThreads;
using cuda::launch_over;
using cuda::Places;
using cuda::Vec;
using cuda::Windows;

using Byte = std::uint8_t;

struct Quantize {
  float scale;
  RoundToU8 round;
  __device__ __forceinline__ Byte operator()(float x) const { return quantized(x, scale, round); }
};

/// scale (stored - zero).
struct Dequantize {
  float scale;
  std::int32_t zero;
  __device__ __forceinline__ float operator()(Byte stored) const {
    return scale * static_cast<float>(stored - zero);
  }
};

struct Sum {
  Dequantize a, b;
  RoundToU8 round;
  __device__ __forceinline__ Byte operator()(Byte x, Byte y) const { return round(a(x) + b(y)); }
};

/// The same, where nothing is added.
struct Requantize {
  Dequantize a;
  RoundToU8 round;
  __device__ __forceinline__ Byte operator()(Byte x) const { return round(a(x)); }
};

struct Lookup {
  const Byte* table;
  __device__ __forceinline__ Byte operator()(Byte x) const { return table[x]; }
};

PoolWindows windows_of(const Pool2dParams& params, const Tensor& x, const Tensor& y) {
  const auto axis = [&](int i) {
    return PoolAxis{.inputs = x.dim(1 + i),
                    .outputs = y.dim(1 + i),
                    .window = params.window[i],
                    .stride = params.stride[i],
                    .padding = params.padding[i],
                    .dilation = params.dilation[i]};
  };
  return {axis(0), axis(1)};
}

/// The windows of a pool, whose elements outside of x do not count.
template <int V> struct Pool {
  Windows windows;
  Places<V> places;  ///< of y

  Pool(const PoolWindows& of, const Tensor& y) : windows(of), places(y) {}

  /// Calls f(V channels) with each element of the window at a place that lies in x.
  template <class F>
  __device__ __forceinline__ void for_each(const Byte* x, const typename Places<V>::Place& at,
                                           const F& f) const {
    const auto rows = windows.h.window(at.h, false), columns = windows.w.window(at.w, false);
    const std::int64_t C = places.channels.divisor() * V, W = windows.w.axis.inputs,
                       down = windows.h.axis.dilation, across = windows.w.axis.dilation;
    const std::int64_t left = columns.start + first_tap(columns.start, across) * across;
    for (std::int64_t h = rows.start + first_tap(rows.start, down) * down; h < rows.end; h += down) {
      const Byte* const line = x + (at.n * windows.h.axis.inputs + h) * W * C + at.c;
      for (std::int64_t w = left; w < columns.end; w += across) f(cuda::load<V>(line + w * C));
    }
  }
};

/// Moves (1 + overlap) bytes per input and one per output.
template <int V>
__global__ void __launch_bounds__(kPlaceThreads, cuda::kPlaceResident)
    max_pool(const Byte* __restrict__ x, Pool<V> pool, Byte* __restrict__ y) {
  for_each_place(pool.places.count, [&](std::int64_t flat) {
    Vec<Byte, V> most{};
    pool.for_each(x, pool.places[flat], [&](const Vec<Byte, V>& in) {
#pragma unroll
      for (int k = 0; k < V; ++k) most[k] = in[k] > most[k] ? in[k] : most[k];
    });
    cuda::store<V>(y + flat * V, most);
  });
}

template <int V>
__global__ void __launch_bounds__(kPlaceThreads, cuda::kPlaceResident)
    average_pool(const Byte* __restrict__ x, Pool<V> pool, std::int32_t x_zero, float scale, RoundToU8 round,
                 Byte* __restrict__ y) {
  for_each_place(pool.places.count, [&](std::int64_t flat) {
    std::int32_t sums[V] = {}, count = 0;
    pool.for_each(x, pool.places[flat], [&](const Vec<Byte, V>& in) {
      ++count;
#pragma unroll
      for (int k = 0; k < V; ++k) sums[k] += in[k];
    });
    Vec<Byte, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = round(scale * static_cast<float>(sums[k] - count * x_zero));
    cuda::store<V>(y + flat * V, out);
  });
}

/// A gate, which is the same for all pixels of an image.
template <int V>
__global__ void __launch_bounds__(kPlaceThreads, cuda::kPlaceResident)
    gate(const Byte* __restrict__ x, Places<V> places, std::int32_t x_zero, const Byte* __restrict__ s,
         std::int32_t s_zero, float scale, RoundToU8 round, Byte* __restrict__ y) {
  for_each_place(places.count, [&](std::int64_t flat) {
    const auto at = places[flat];
    const auto in = cuda::load<V>(x + flat * V),
               by = cuda::load<V>(s + at.n * places.channels.divisor() * V + at.c);
    Vec<Byte, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const std::int32_t product = (in[k] - x_zero) * (by[k] - s_zero);
      out[k] = round(scale * static_cast<float>(product));
    }
    cuda::store<V>(y + flat * V, out);
  });
}

}  // namespace

void quantize(CudaContext& context, const Tensor& x, const Quantizer& quantizer, Out y) {
  cuda::map_dense(context, "quantize", x.numel(),
                  Quantize{quantizer.scale, RoundToU8({.zero = quantizer.zero})}, y.data<Byte>(),
                  static_cast<const float*>(x.data<float>()));
}

void dequantize(CudaContext& context, const Tensor& x, const Quantizer& quantizer, Out y) {
  cuda::map_dense(context, "dequantize", x.numel(), Dequantize{quantizer.scale, quantizer.zero},
                  y.data<float>(), static_cast<const Byte*>(x.data<Byte>()));
}

void max_pool2d_int8(CudaContext& context, const Pool2dParams& params, const Tensor& x, Out y) {
  if (y.numel() == 0) return;
  const Byte* const in = x.data<Byte>();
  Byte* const out = y.data<Byte>();
  const auto run = [&]<int V>() {
    const Pool<V> pool(windows_of(params, x, y), y);
    launch_over(context, "max_pool2d_int8", pool.places.count, max_pool<V>, in, pool, out);
  };
  cuda::dispatch_width<Byte>(x.dim(3), run, in, out);
}

void avg_pool2d_int8(CudaContext& context, const Pool2dParams& params, const Tensor& x, std::int32_t x_zero,
                     float scale, const Rounding& rounding, Out y) {
  if (y.numel() == 0) return;
  const Byte* const in = x.data<Byte>();
  Byte* const out = y.data<Byte>();
  const auto run = [&]<int V>() {
    const Pool<V> pool(windows_of(params, x, y), y);
    launch_over(context, "avg_pool2d_int8", pool.places.count, average_pool<V>, in, pool, x_zero, scale,
                RoundToU8(rounding), out);
  };
  cuda::dispatch_width<Byte>(x.dim(3), run, in, out);
}

void add_int8(CudaContext& context, const Tensor& a, float a_scale, std::int32_t a_zero,
              const Int8Residual& b, const Rounding& rounding, Out y) {
  const Dequantize of_a{a_scale, a_zero};
  const Byte* const in = a.data<Byte>();
  if (!b.tensor.defined())
    return cuda::map_dense(context, "add_int8", a.numel(), Requantize{of_a, RoundToU8(rounding)},
                           y.data<Byte>(), in);
  cuda::map_dense(context, "add_int8", a.numel(), Sum{of_a, {b.scale, b.zero}, RoundToU8(rounding)},
                  y.data<Byte>(), in, static_cast<const Byte*>(b.tensor.data<Byte>()));
}

void multiply_int8(CudaContext& context, const Tensor& x, std::int32_t x_zero, const Tensor& s,
                   std::int32_t s_zero, float scale, const Rounding& rounding, Out y) {
  if (y.numel() == 0) return;
  const Byte *const in = x.data<Byte>(), *const by = s.data<Byte>();
  Byte* const out = y.data<Byte>();
  const auto run = [&]<int V>() {
    const Places<V> places(y);
    launch_over(context, "multiply_int8", places.count, gate<V>, in, places, x_zero, by, s_zero, scale,
                RoundToU8(rounding), out);
  };
  cuda::dispatch_width<Byte>(x.dim(3), run, in, by, out);
}

void lookup_int8(CudaContext& context, const Tensor& x, const Tensor& table, Out y) {
  cuda::map_dense(context, "lookup_int8", x.numel(), Lookup{table.data<Byte>()}, y.data<Byte>(),
                  static_cast<const Byte*>(x.data<Byte>()));
}

}  // namespace athanor::kernels
