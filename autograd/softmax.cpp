#include "autograd/softmax.h"

#include "autograd/node.h"
#include "autograd/shape.h"
#include "kernels/softmax.h"

namespace athanor {
namespace {

using kernels::SoftmaxForm;

Tensor run(const char* op, SoftmaxForm form, const Tensor& x, int axis) {
  ATH_CHECK(x.defined() && is_floating(x.dtype()), "{}: tensor must be floating, but got {}", op,
            x.defined() ? name_of(x.dtype()) : "an undefined tensor");
  axis = normalize_axis(axis, x.rank(), op);
  const Tensor y = empty_like(x);
  on_device(x.device(), [&](auto& context) {
    const NoGrad no_grad;
    kernels::softmax_forward(context, form, contiguous(x), axis, y);
  });
  return record(op, y, {x}, [form, axis, y = Saved::output(y)](const Tensor& dy, Grads& dx) {
    dx[0] = empty_like(dy);
    on_device(dy.device(), [&](auto& context) {
      kernels::softmax_backward(context, form, y, contiguous(dy), axis, dx[0]);
    });
  });
}

}  // namespace

Tensor softmax(const Tensor& x, int axis) {
  return run("softmax", SoftmaxForm::probability, x, axis);
}

Tensor log_softmax(const Tensor& x, int axis) {
  return run("log_softmax", SoftmaxForm::logarithm, x, axis);
}

}  // namespace athanor
