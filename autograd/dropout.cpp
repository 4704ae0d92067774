#include "autograd/dropout.h"

#include "autograd/detail/dense.h"
#include "autograd/node.h"
#include "kernels/dropout.h"
#include "kernels/on_device.h"

namespace athanor {

Tensor dropout(const Tensor& x, float p, bool training) {
  check_floating("dropout", x);
  ATH_CHECK(p >= 0 && p <= 1, "dropout: p must be in [0, 1], but got {}", p);
  if (!training || p == 0) return x;
  const Tensor y = empty_like(x);
  RandomOp op;
  on_device(x.device(), [&](auto& context) {
    op = next_random_op(context, x.shape());
    kernels::dropout(context, p, op, dense(x), y);
  });
  return record("dropout", y, {x}, [p, op](const Tensor& dy, Grads& dx) {
    dx[0] = empty_like(dy);
    on_device(dy.device(), [&](auto& context) { kernels::dropout(context, p, op, dense(dy), dx[0]); });
  });
}

}  // namespace athanor
