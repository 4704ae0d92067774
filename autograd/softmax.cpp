#include "autograd/softmax.h"

#include "autograd/detail/dense.h"
#include "autograd/node.h"
#include "kernels/on_device.h"
#include "kernels/softmax.h"

namespace athanor {
namespace {

using kernels::SoftmaxForm;

Tensor run(const char* op, SoftmaxForm form, const Tensor& x, int axis) {
  check_floating(op, x);
  axis = normalize_axis(axis, x.rank(), op);
  const Tensor y = empty_like(x);
  on_device(x.device(), [&](auto& context) { kernels::softmax_forward(context, form, dense(x), axis, y); });
  return record({op, {{"axis", {axis}}}}, y, {x},
                [form, axis, y = Saved::output(y)](const Tensor& dy, Grads& dx) {
                  dx[0] = empty_like(dy);
                  on_device(dy.device(), [&](auto& context) {
                    kernels::softmax_backward(context, form, y, dense(dy), axis, dx[0]);
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
