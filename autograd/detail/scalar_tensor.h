#pragma once

#include "kernels/convert.h"
#include "kernels/copy.h"
#include "kernels/on_device.h"
#include "tensor/tensor.h"

namespace athanor::detail {

/// `value` rounded to a floating dtype.
inline double rounded_to(double value, DType dtype) {
  return dispatch_floating(dtype, "scalar",
                           [&]<class T>() { return kernels::convert<double>(kernels::convert<T>(value)); });
}

/// A scalar tensor of `value` in x's dtype, on its device. Throws ArgumentError naming op and argument if x's
/// integer dtype cannot hold it.
inline Tensor scalar_like(const char* op, const char* argument, double value, const Tensor& x) {
  if (!is_floating(x.dtype())) {
    dispatch_any(x.dtype(), [&]<class T>() {
      ATH_CHECK(kernels::convert<double>(kernels::convert<T>(value)) == value,
                "{}: {} must fit the tensor's dtype {}, but is {}", op, argument, x.dtype(), value);
    });
  }
  const Tensor y = Tensor::empty({}, x.options());
  on_device(x.device(), [&](auto& context) { kernels::fill(context, y, value); });
  return y;
}

}  // namespace athanor::detail
