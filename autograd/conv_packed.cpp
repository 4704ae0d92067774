// A file of its own: tests/cuda/plans_test.cpp defines conv2d() itself, so nothing beside it may be needed
// from conv.cpp.

#include "autograd/conv.h"
#include "autograd/detail/dense.h"
#include "autograd/detail/pad_same.h"
#include "autograd/node.h"

namespace athanor {

Tensor conv2d_packed(const Tensor& x, const kernels::PackedWeights& w, const Conv2dParams& params,
                     const Tensor& residual) {
  ATH_CHECK(x.defined() && x.dtype() == DType::f32 && x.device().is_cpu(),
            "conv2d: for packed weights, x must be f32 on the CPU, but is {}",
            x.defined() ? fmt::format("{} on {}", x.dtype(), x.device().str()) : "undefined");
  ATH_CHECK(w.are_current(),
            "conv2d: packed weights must stay as they are, but were written to; call pack_weights() again");
  const Shape shape = conv2d_shape(x.shape(), w.shape(), params);
  Conv2dParams even = params;
  const Tensor input = dense(params.same_padding ? detail::pad_same(x, w.shape(), even) : x);
  if (residual.defined()) check_dense("conv2d", "residual", residual, DType::f32, shape, kCpu);
  const Tensor y = Tensor::empty(shape);
  kernels::conv2d_packed(cpu_context(), even, input, w, residual, y);
  return record("conv2d", y, {}, [](const Tensor&, Grads&) {});
}

}  // namespace athanor
