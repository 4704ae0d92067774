#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/conv.h"
#include "kernels/pool.h"

// Inference with 8-bit integers. Activations are u8 tensors with a scale and a zero of their own, weights are
// i8 with a scale per output channel. Products are summed exactly, in i32, and every backend rounds in the
// same steps, each of one f32 operation: equal inputs give equal bytes on every CPU and on a GPU.

namespace athanor {

/// How a u8 tensor stores real numbers: real = scale (stored - zero).
struct Quantizer {
  float scale = 1;        ///< > 0 and finite
  std::int32_t zero = 0;  ///< in [0, 255]

  bool operator==(const Quantizer&) const = default;
};

namespace kernels {

class Int8Weights;

/// The last step of an op: y = clamp(round(v) + zero, low, high) for v in units of y's scale, where round()
/// is to nearest even. A ReLU is a `low` of `zero`. v is computed in f32 from exact integers, each product
/// and sum rounded on its own, in the order in which a kernel's comment names them.
struct Rounding {
  std::int32_t zero = 0, low = 0, high = 255;
};

/// A tensor that is added before rounding: v += scale (stored - zero), with `scale` in units of y's.
struct Int8Residual {
  Tensor tensor;  ///< u8, of y's shape; undefined: nothing is added
  float scale = 0;
  std::int32_t zero = 0;
};

/// y = x stored by `quantizer`: clamp(round(x / scale) + zero, 0, 255); NaN becomes `zero`. x f32, y u8,
/// dense, of equal shape.
ATH_KERNEL(void, quantize, const Tensor& x, const Quantizer& quantizer, Out y);
ATH_MAP(quantize, (const Tensor& x, const Quantizer&, Out y), "quantize", (x), (y))
/// y = scale (x - zero). x u8, y f32, dense, of equal shape.
ATH_KERNEL(void, dequantize, const Tensor& x, const Quantizer& quantizer, Out y);
ATH_MAP(dequantize, (const Tensor& x, const Quantizer&, Out y), "dequantize", (x), (y))

/// v = w.multiplier[k] (w.bias[k] + sum of x w), an i32, plus residual.scale (residual - zero), rounded. x u8
/// [N, H, W, C], padded with `x_zero`; y u8 [N, P, Q, K]; both dense. params: stride, padding, dilation,
/// groups; same_padding and activation are not used.
ATH_KERNEL(void, conv2d_int8, const Conv2dParams& params, const Tensor& x, std::int32_t x_zero,
           const Int8Weights& w, const Int8Residual& residual, const Rounding& rounding, Out y);
/// y = w.multiplier[k] (w.bias[k] + sum of x w), f32: not rounded.
ATH_KERNEL(void, conv2d_int8, const Conv2dParams& params, const Tensor& x, std::int32_t x_zero,
           const Int8Weights& w, Out y);

/// y = the largest stored value of each window; what lies outside x does not count. x u8 [N, H, W, C],
/// y u8 [N, P, Q, C].
ATH_KERNEL(void, max_pool2d_int8, const Pool2dParams& params, const Tensor& x, Out y);
ATH_MAP(max_pool2d_int8, (const Pool2dParams&, const Tensor& x, Out y), "max_pool2d_int8", (x), (y))
/// v = scale (sum of the window - count x_zero), rounded, where `scale` includes 1 / count: the mean of
/// windows that lie within x. What lies outside x does not count. x u8 [N, H, W, C], y u8 [N, P, Q, C].
ATH_KERNEL(void, avg_pool2d_int8, const Pool2dParams& params, const Tensor& x, std::int32_t x_zero,
           float scale, const Rounding& rounding, Out y);
ATH_MAP(avg_pool2d_int8, (const Pool2dParams&, const Tensor& x, std::int32_t, float, const Rounding&, Out y),
        "avg_pool2d_int8", (x), (y))
/// v = a_scale (a - a_zero) + residual, rounded: a sum of two tensors. u8, dense, of equal shape.
ATH_KERNEL(void, add_int8, const Tensor& a, float a_scale, std::int32_t a_zero, const Int8Residual& b,
           const Rounding& rounding, Out y);
ATH_MAP(add_int8, (const Tensor& a, float, std::int32_t, const Int8Residual& b, const Rounding&, Out y),
        "add_int8", (a, b.tensor), (y))
/// v = scale (x - x_zero) (s - s_zero), rounded, for x [N, H, W, C] and s [N, 1, 1, C]: a gate of channels.
ATH_KERNEL(void, multiply_int8, const Tensor& x, std::int32_t x_zero, const Tensor& s, std::int32_t s_zero,
           float scale, const Rounding& rounding, Out y);
ATH_MAP(multiply_int8,
        (const Tensor& x, std::int32_t, const Tensor& s, std::int32_t, float, const Rounding&, Out y),
        "multiply_int8", (x, s), (y))
/// y = table[x]: any function of one stored value. table u8 [256]; x and y u8, dense, of equal shape.
ATH_KERNEL(void, lookup_int8, const Tensor& x, const Tensor& table, Out y);
ATH_MAP(lookup_int8, (const Tensor& x, const Tensor& table, Out y), "lookup_int8", (x, table), (y))

}  // namespace kernels
}  // namespace athanor
