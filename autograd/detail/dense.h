#pragma once

#include "kernels/copy.h"
#include "tensor/tensor.h"

namespace athanor {

/// x itself where it is dense, else a dense copy that no graph knows: for kernels that need rows side by
/// side.
inline Tensor dense(const Tensor& x) {
  if (x.is_contiguous()) return x;
  const Tensor y = empty_like(x);
  on_device(x.device(), [&](auto& context) { kernels::copy(context, x, y); });
  return y;
}

inline void check_floating(const char* op, const Tensor& x) {
  ATH_CHECK(x.defined() && is_floating(x.dtype()), "{}: tensor must be floating, but got {}", op,
            x.defined() ? name_of(x.dtype()) : "an undefined tensor");
}

/// Throws ArgumentError where a parameter is not what kernels read.
inline void check_dense(const char* op, const char* name, const Tensor& p, DType dtype, const Shape& shape,
                        Device device) {
  ATH_CHECK(p.dtype() == dtype && p.shape() == shape && p.device() == device && p.is_contiguous(),
            "{}: {} must be dense {} {} on {}, but is {} {} on {}{}", op, name, dtype, shape, device.str(),
            p.dtype(), p.shape(), p.device().str(), p.is_contiguous() ? "" : ", with strides");
}

}  // namespace athanor
