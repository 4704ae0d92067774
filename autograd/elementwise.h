#pragma once

#include "tensor/tensor.h"

namespace athanor {

// Binary ops. Operands broadcast by NumPy's rule and have one dtype and device; any strides. Any dtype but
// bool, unless stated; integers wrap. Gradients are summed to each operand's shape. Throws ArgumentError on
// shapes that do not broadcast and on mixed dtypes or devices: nothing is converted implicitly.

/// a + b, a - b, a b, broadcast over both shapes.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
/// a / b by IEEE rules: no check for zero. Floating.
Tensor div(const Tensor& a, const Tensor& b);
/// The floor of a / b, by Python's rules: -3 and 2 give -2; a floating b of 0 gives a / b by IEEE rules.
/// Gradients are 0. Throws ArgumentError if an integer b holds 0 (CPU only; on other devices the result is
/// 0).
Tensor floor_divide(const Tensor& a, const Tensor& b);
/// a - floor_divide(a, b) b: 0 or of b's sign; NaN if b is a floating 0. The gradients are dy and -dy
/// floor_divide(a, b). An integer b of 0 as in floor_divide().
Tensor remainder(const Tensor& a, const Tensor& b);
/// The larger element of each pair, NaN if either is NaN. Equal elements get half of the gradient each.
Tensor maximum(const Tensor& a, const Tensor& b);
/// The smaller element of each pair; otherwise as maximum().
Tensor minimum(const Tensor& a, const Tensor& b);
/// a^b by IEEE rules: 1 for b = 0 or a = 1, NaN for a negative a with a non-integer b. The gradients are b
/// a^(b - 1), 0 for b = 0, and a^b log(a), 0 for a = 0 <= b. Floating.
Tensor pow(const Tensor& a, const Tensor& b);

/// -x, of any dtype but bool.
Tensor neg(const Tensor& x);
/// x * scale + shift, floating, with scalars: one pass, and no tensor for either scalar.
Tensor affine(const Tensor& x, double scale, double shift = 0);

// Unary ops. x is floating unless stated, of any shape and strides; the result is dense. Computed in f32 (f64
// for f64) and rounded once; kernels/math.h gives the accuracy.

/// max(x, 0); the derivative at 0 is 0. NaN stays NaN.
Tensor relu(const Tensor& x);
/// x Phi(x). On a GPU, results of 16 bits have the error that kernels/cuda/gelu.h states, at most 1/8 of
/// f16's last place and 2^-26, before they are rounded. Source: Hendrycks and Gimpel 2016, arXiv:1606.08415.
Tensor gelu(const Tensor& x);
/// The tanh approximation of gelu().
Tensor gelu_tanh(const Tensor& x);
/// x sigmoid(x). Source: Elfwing et al. 2017, arXiv:1702.03118.
Tensor silu(const Tensor& x);
/// min(max(x, 0), 6); the derivative at 0 and 6 is 0. Source: Krizhevsky 2010, "Convolutional deep belief
/// networks on CIFAR-10".
Tensor relu6(const Tensor& x);
/// x hardsigmoid(x). Source: Howard et al. 2019, arXiv:1905.02244, section 5.2.
Tensor hardswish(const Tensor& x);
/// min(max(x + 3, 0), 6) / 6; the derivative at -3 and 3 is 0.
Tensor hardsigmoid(const Tensor& x);
/// x tanh(log(1 + e^x)). Source: Misra 2019, arXiv:1908.08681.
Tensor mish(const Tensor& x);
/// 1 / (1 + e^-x)
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor exp(const Tensor& x);
/// Natural logarithm: -infinity at 0, NaN below.
Tensor log(const Tensor& x);
/// NaN below 0; the derivative at 0 is infinite.
Tensor sqrt(const Tensor& x);
/// 1 / sqrt(x): infinite at 0, NaN below.
Tensor rsqrt(const Tensor& x);
/// x * x
Tensor square(const Tensor& x);
/// Absolute value |x|, also of integers, whose smallest stays itself; the derivative at 0 and at NaN is 0.
Tensor abs(const Tensor& x);

/// add(a, b).
inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
/// sub(a, b).
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
/// mul(a, b).
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
/// div(a, b).
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return div(a, b);
}
/// neg(x).
inline Tensor operator-(const Tensor& x) {
  return neg(x);
}

}  // namespace athanor
