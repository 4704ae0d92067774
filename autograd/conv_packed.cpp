// A separate file, because tests/cuda/plans_test.cpp defines its own conv2d() and must not link conv.cpp.

#include "autograd/conv.h"
#include "autograd/detail/dense.h"
#include "autograd/detail/pad_same.h"
#include "autograd/elementwise.h"
#include "autograd/node.h"
#include "autograd/pool.h"
#include "kernels/packed_weights.h"

namespace athanor {
namespace {

void check(const Tensor& x, const kernels::PackedWeights& w) {
  ATH_CHECK(x.defined() && x.dtype() == DType::f32 && x.device().is_cpu(),
            "conv2d: for packed weights, x must be f32 on the CPU, but is {}",
            x.defined() ? fmt::format("{} on {}", x.dtype(), x.device().str()) : "undefined");
  ATH_CHECK(w.are_current(),
            "conv2d: packed weights must not change, but were written to; call pack_weights() again");
}

}  // namespace

Tensor conv2d_packed(const Tensor& x, const kernels::PackedWeights& w, const Conv2dParams& params,
                     const Tensor& residual) {
  check(x, w);
  const Shape shape = conv2d_shape(x.shape(), w.shape(), params);
  Conv2dParams even = params;
  const Tensor input = dense(params.same_padding ? detail::pad_same(x, w.shape(), even) : x);
  if (residual.defined()) check_dense("conv2d", "residual", residual, DType::f32, shape, kCpu);
  const Tensor y = Tensor::empty(shape);
  kernels::conv2d_packed(cpu_context(), even, input, w, residual, y);
  return record("conv2d", y, {}, [](const Tensor&, Grads&) {});
}

Tensor conv2d_pool_packed(const Tensor& x, const kernels::PackedWeights& w, const Conv2dParams& params) {
  check(x, w);
  const Shape unpooled = conv2d_shape(x.shape(), w.shape(), params);
  if (!params.same_padding && params.activation == Activation::none) {
    const Tensor y = Tensor::empty({unpooled[0], unpooled[1] / 2, unpooled[2] / 2, unpooled[3]});
    if (kernels::conv2d_pool_packed(cpu_context(), params, dense(x), w, y))
      return record("conv2d", y, {}, [](const Tensor&, Grads&) {});
  }
  return relu(max_pool2d(conv2d_packed(x, w, params)));
}

}  // namespace athanor
