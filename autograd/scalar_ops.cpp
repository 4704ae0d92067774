#include "autograd/scalar_ops.h"

#include <cmath>
#include <limits>

#include "autograd/detail/dense.h"
#include "autograd/detail/scalar_tensor.h"
#include "autograd/elementwise.h"
#include "autograd/node.h"
#include "autograd/shape.h"
#include "kernels/on_device.h"
#include "kernels/scalar_ops.h"

namespace athanor {
namespace {

// The numbers of the functor are the op's attribute.
template <class Op>
Tensor scalar_op(const char* name, const Op& op, std::initializer_list<OpNumber> numbers, const Tensor& x) {
  check_floating(name, x);
  const Tensor y = empty_like(x);
  on_device(x.device(), [&](auto& context) { kernels::scalar_forward(context, op, x, y); });
  return record({name, {{"numbers", numbers}}}, y, {x}, [op, x = Saved(x)](const Tensor& dy, Grads& dx) {
    dx[0] = empty_like(dy);
    on_device(dy.device(), [&](auto& context) { kernels::scalar_backward(context, op, x.get(), dy, dx[0]); });
  });
}

}  // namespace

Tensor leaky_relu(const Tensor& x, double slope) {
  return scalar_op("leaky_relu", kernels::LeakyRelu{slope}, {slope}, x);
}

Tensor elu(const Tensor& x, double alpha) {
  return scalar_op("elu", kernels::Elu{alpha}, {alpha}, x);
}

Tensor softplus(const Tensor& x, double beta, double threshold) {
  ATH_CHECK(std::isfinite(beta) && beta != 0, "softplus: beta must be finite and not 0, but is {}", beta);
  return scalar_op("softplus", kernels::Softplus{beta, threshold}, {beta, threshold}, x);
}

Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high) {
  ATH_CHECK(low || high, "clamp: at least one bound must be given, but got none");
  ATH_CHECK(!std::isnan(low.value_or(0)) && !std::isnan(high.value_or(0)),
            "clamp: bounds must not be NaN, but are {} and {}", low.value_or(0), high.value_or(0));
  if (x.defined() && !is_floating(x.dtype())) {
    Tensor y = x;
    if (low) y = maximum(y, detail::scalar_like("clamp", "low", *low, x));
    if (high) y = minimum(y, detail::scalar_like("clamp", "high", *high, x));
    return y;
  }
  check_floating("clamp", x);
  const auto bound = [&](std::optional<double> value) {
    return value ? detail::rounded_to(*value, x.dtype()) : std::numeric_limits<double>::quiet_NaN();
  };
  const kernels::Clamp op{bound(low), bound(high)};
  return scalar_op("clamp", op, {op.low, op.high}, x);
}

Tensor floor_divide(const Tensor& x, double divisor) {
  ATH_CHECK(x.defined(), "floor_divide: tensor must be defined, but is not");
  if (is_half(x.dtype())) return cast(floor_divide(cast(x, DType::f32), divisor), x.dtype());
  return floor_divide(x, detail::scalar_like("floor_divide", "divisor", divisor, x));
}

Tensor remainder(const Tensor& x, double divisor) {
  ATH_CHECK(x.defined(), "remainder: tensor must be defined, but is not");
  if (is_half(x.dtype())) return cast(remainder(cast(x, DType::f32), divisor), x.dtype());
  return remainder(x, detail::scalar_like("remainder", "divisor", divisor, x));
}

Tensor pow(const Tensor& x, double exponent) {
  if (exponent == 2 && x.defined() && is_floating(x.dtype())) return square(x);  // one product
  return scalar_op("pow", kernels::Power{exponent}, {exponent}, x);
}

}  // namespace athanor
