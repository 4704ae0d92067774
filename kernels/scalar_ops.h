#pragma once

#include "kernels/context.h"
#include "kernels/math.h"

// Elementwise ops of one tensor and some numbers, which the functor holds. As in elementwise_ops.h,
// forward(x) is the op and backward(x, dy) is dL/dx, in the accumulation type.

namespace athanor::kernels {

/// x above 0, slope x elsewhere.
struct LeakyRelu {
  double slope;

  template <class A> ATH_HD A forward(A x) const { return x > A(0) ? x : x * A(slope); }
  template <class A> ATH_HD A backward(A x, A dy) const { return x > A(0) ? dy : dy * A(slope); }
};

/// x from 0 up, alpha (e^x - 1) below. The derivative at 0 is alpha.
struct Elu {
  double alpha;

  template <class A> ATH_HD A forward(A x) const { return x < A(0) ? A(alpha) * math::expm1(x) : x; }
  template <class A> ATH_HD A backward(A x, A dy) const {
    return x <= A(0) ? dy * A(alpha) * math::exp(x) : dy;
  }
};

/// log(1 + e^(beta x)) / beta, shifted so that nothing overflows; x itself where beta x > threshold.
struct Softplus {
  double beta, threshold;

  template <class A> ATH_HD A forward(A x) const {
    const A z = x * A(beta);
    const A y = ((z < A(0) ? A(0) : z) + math::log1p(math::exp(-std::fabs(z)))) / A(beta);
    return z > A(threshold) ? x : y;
  }
  template <class A> ATH_HD A backward(A x, A dy) const {
    const A z = x * A(beta);
    return z > A(threshold) ? dy : dy * math::sigmoid(z);
  }
};

/// min(max(x, low), high), a bound of NaN being none; NaN stays NaN. The derivative at a bound and at NaN is
/// 0, as in PyTorch.
struct Clamp {
  double low, high;

  template <class A> ATH_HD A forward(A x) const {
    const A above = x < A(low) ? A(low) : x;
    return above > A(high) ? A(high) : above;
  }
  template <class A> ATH_HD A backward(A x, A dy) const {
    return (x <= A(low)) | (x >= A(high)) | (x != x) ? A(0) : dy;
  }
};

/// x^exponent. d/dx = exponent x^(exponent - 1), 0 where exponent is 0.
struct Power {
  double exponent;

  template <class A> ATH_HD A forward(A x) const { return math::pow(x, A(exponent)); }
  template <class A> ATH_HD A backward(A x, A dy) const {
    return exponent == 0 ? A(0) : dy * (A(exponent) * math::pow(x, A(exponent - 1)));
  }
};

/// y = op.forward(x). x any strides, y dense, same shape and floating dtype. Moves 2 elements per element.
template <class Op, class Context>
void scalar_forward(Context& context, const Op& op, const Tensor& x, const Tensor& y);

/// dx = op.backward(x, dy). Any strides but dx, which is dense; same shape and floating dtype. Moves 3
/// elements per element.
template <class Op, class Context>
void scalar_backward(Context& context, const Op& op, const Tensor& x, const Tensor& dy, const Tensor& dx);

}  // namespace athanor::kernels

/// Every such op, as functor and the name of its kernels: drives the instantiations of each backend.
#define ATH_SCALAR_OPS(X)  \
  X(LeakyRelu, leaky_relu) \
  X(Elu, elu)              \
  X(Softplus, softplus)    \
  X(Clamp, clamp)          \
  X(Power, power)
