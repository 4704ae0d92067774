#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/conv.h"
#include "kernels/cpu/context.h"
#include "tests/support/conv_cases.h"
#include "tests/support/exact_values.h"
#include "tests/support/ops.h"

namespace athanor::test {

inline std::string name(const ConvCase& c, DType dtype, ConvImpl impl) {
  return fmt::format("x {} w {} groups {} {} impl {}", c.x.str(), c.w.str(), c.params.groups, name_of(dtype),
                     name_of(impl));
}

/// x in f64.
inline Tensor wide(const Tensor& x) {
  const Tensor y = Tensor::empty(x.shape(), {DType::f64});
  kernels::copy(cpu_context(), x, y);
  return y;
}

/// What the passes of a convolution read.
struct ConvOperands {
  Tensor x, w, dy, bias;

  ConvOperands(const ConvCase& c, DType dtype, Values of = values)
      : x(of(c.x, dtype, 1)),
        w(of(c.w, dtype, 2)),
        dy(of(conv2d_shape(c.x, c.w, c.params), dtype, 3)),
        bias(of({c.w[0]}, dtype, 4)) {}

  /// The same values in f64.
  ConvOperands in_f64() const {
    ConvOperands other = *this;
    for (Tensor* const t : {&other.x, &other.w, &other.dy, &other.bias}) *t = wide(*t);
    return other;
  }
  /// y, with the bias and the activation of `params`; dx and dw; and both added to x and w, the latter in the
  /// dtype that sums are kept in.
  std::vector<Tensor> passes(Conv2dParams params, ConvImpl impl) const {
    CpuContext& context = cpu_context();
    params.impl = impl;
    const Tensor y = empty_like(dy), dx = empty_like(x), dw = empty_like(w), dx_sum = empty_like(x),
                 dw_sum = Tensor::empty(w.shape(), {x.dtype() == DType::f64 ? DType::f64 : DType::f32});
    kernels::copy(context, x, dx_sum), kernels::copy(context, w, dw_sum);
    kernels::conv2d_forward(context, params, x, w, bias, y);
    params.activation = Activation::none;
    kernels::conv2d_backward_data(context, params, dy, w, dx);
    kernels::conv2d_backward_data(context, params, dy, w, dx_sum, Write::accumulate);
    kernels::conv2d_backward_weights(context, params, x, dy, dw, Write::overwrite, {}, {});
    kernels::conv2d_backward_weights(context, params, x, dy, dw_sum, Write::accumulate, {}, {});
    return {y, dx, dw, dx_sum, dw_sum};
  }
};

inline Conv2dParams with(Conv2dParams params, Activation activation) {
  params.activation = activation;
  return params;
}

}  // namespace athanor::test
