#pragma once

#include "kernels/copy.h"
#include "tensor/tensor.h"

namespace athanor {

/// x itself where it is dense, else a dense copy that no graph knows: for kernels that need rows side by
/// side.
inline Tensor dense(const Tensor& x) {
  if (x.is_contiguous()) return x;
  const Tensor y = Tensor::empty(x.shape(), x.options());
  on_device(x.device(), [&](auto& context) { kernels::copy(context, x, y); });
  return y;
}

}  // namespace athanor
