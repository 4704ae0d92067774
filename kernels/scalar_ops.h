#pragma once

#include "kernels/context.h"
#include "kernels/math.h"

// Elementwise ops of a tensor with scalars, which the functor holds. As in elementwise_ops.h, forward(x) is
// the op and backward(x, dy) is dL/dx, in the accumulation type. Both sides of a choice are computed and one
// is selected: conditional arithmetic would prevent vectorisation.

namespace athanor::kernels {

/// x if x > 0, else slope x.
struct LeakyRelu {
  double slope;

  template <class A> ATH_HD A forward(A x) const {
    const A scaled = x * A(slope);
    return x > A(0) ? x : scaled;
  }
  template <class A> ATH_HD A backward(A x, A dy) const {
    const A scaled = dy * A(slope);
    return x > A(0) ? dy : scaled;
  }
};

/// x if x >= 0, else alpha (e^x - 1). The derivative at 0 is alpha.
struct Elu {
  double alpha;

  template <class A> ATH_HD A forward(A x) const {
    const A below = A(alpha) * math::expm1(x);
    return x < A(0) ? below : x;
  }
  template <class A> ATH_HD A backward(A x, A dy) const {
    const A below = dy * A(alpha) * math::exp(x);
    return x > A(0) ? dy : below;  // NaN at NaN
  }
};

/// log(1 + e^(beta x)) / beta without overflow; x itself if beta x > threshold.
struct Softplus {
  double beta, threshold;

  template <class A> ATH_HD A forward(A x) const {
    const A z = x * A(beta);
    const A y = ((z < A(0) ? A(0) : z) + math::log1p(math::exp(-std::fabs(z)))) / A(beta);
    return z > A(threshold) ? x : y;
  }
  template <class A> ATH_HD A backward(A x, A dy) const {
    const A z = x * A(beta);
    const A curved = dy * math::sigmoid(z);
    return z > A(threshold) ? dy : curved;
  }
};

/// min(max(x, low), high), where a NaN bound is ignored; NaN stays NaN. The derivative at a bound and at NaN
/// is 0, as in PyTorch.
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

/// x^exponent. d/dx = exponent x^(exponent - 1), 0 for exponent 0.
struct Power {
  double exponent;

  template <class A> ATH_HD A forward(A x) const { return math::pow(x, varying(A(exponent), x)); }
  template <class A> ATH_HD A backward(A x, A dy) const {
    const A slope = math::scaled_pow(x, varying(A(exponent - 1), x), A(exponent), dy);
    return exponent == 0 ? A(0) : slope;
  }

 private:
  /// Hides from the compiler that `constant` is the same for all elements: it would emit branches on it, and
  /// then not vectorise.
  template <class A> ATH_HD static A varying(A constant, A x) {
    const A bounded = std::fabs(x) < A(1) ? x : A(1);
    return std::fma(A(0), bounded, constant);
  }
};

/// y = op.forward(x). x any strides, y dense, same shape and floating dtype. Moves 2 elements per element.
ATH_KERNEL(template <class Op> void, scalar_forward, const Op& op, const Tensor& x, Out y);

/// dx = op.backward(x, dy). Any strides but dx, which is dense; same shape and floating dtype. Moves 3
/// elements per element.
ATH_KERNEL(template <class Op> void, scalar_backward, const Op& op, const Tensor& x, const Tensor& dy,
           Out dx);

}  // namespace athanor::kernels

/// Every such op, as functor and kernel name: drives the instantiations of each backend.
#define ATH_SCALAR_OPS(X)  \
  X(LeakyRelu, leaky_relu) \
  X(Elu, elu)              \
  X(Softplus, softplus)    \
  X(Clamp, clamp)          \
  X(Power, power)
