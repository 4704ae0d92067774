#pragma once

#include "kernels/math.h"
#include "kernels/softmax.h"

// The maths of softmax, written once, like elementwise_ops.h.

namespace athanor::kernels {

/// What is left to do once a slice's maximum and sum of exp(x - max) are known.
template <class A> struct SoftmaxOf {
  SoftmaxForm form;
  A max, last;  ///< 1 / sum, or log(sum)

  ATH_HD static SoftmaxOf slice(SoftmaxForm form, A max, A sum) {
    return {form, max, form == SoftmaxForm::logarithm ? math::log(sum) : A(1) / sum};
  }
  ATH_HD A operator()(A x) const {
    return form == SoftmaxForm::logarithm ? (x - max) - last : math::exp(x - max) * last;
  }
};

/// What is summed over a slice of gradients, and what becomes of each with the sum.
template <class A> struct SoftmaxGradient {
  SoftmaxForm form;

  ATH_HD A term(A y, A dy) const { return form == SoftmaxForm::logarithm ? dy : dy * y; }
  ATH_HD A operator()(A y, A dy, A total) const {
    return form == SoftmaxForm::logarithm ? std::fma(-math::exp(y), total, dy) : y * (dy - total);
  }
};

}  // namespace athanor::kernels
