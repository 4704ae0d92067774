#include "autograd/dropout.h"

#include "autograd/node.h"
#include "autograd/shape.h"
#include "kernels/dropout.h"

namespace athanor {

Tensor dropout(const Tensor& x, float p, bool training) {
  ATH_CHECK(x.defined() && is_floating(x.dtype()), "dropout: tensor must be floating, but got {}",
            x.defined() ? name_of(x.dtype()) : "an undefined tensor");
  ATH_CHECK(p >= 0 && p <= 1, "dropout: p must be in [0, 1], but got {}", p);
  if (!training || p == 0) return x;
  const Tensor y = empty_like(x);
  std::int64_t op = 0;
  on_device(x.device(), [&](auto& context) {
    op = context.next_random_op();
    const NoGrad no_grad;
    kernels::dropout(context, p, op, contiguous(x), y);
  });
  return record("dropout", y, {x}, [p, op](const Tensor& dy, Grads& dx) {
    dx[0] = empty_like(dy);
    on_device(dy.device(), [&](auto& context) { kernels::dropout(context, p, op, contiguous(dy), dx[0]); });
  });
}

}  // namespace athanor
