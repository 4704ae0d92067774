#include "autograd/elementwise.h"

#include "autograd/detail/dense.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "kernels/elementwise.h"

namespace athanor {
namespace {

template <class Op> Tensor unary(const char* op, const Tensor& x) {
  check_floating(op, x);
  const Tensor y = empty_like(x);
  on_device(x.device(), [&](auto& context) { kernels::unary_forward<Op>(context, x, y); });
  return record(op, y, {x},
                [saved = Op::kFromOutput ? Saved::output(y) : Saved(x)](const Tensor& dy, Grads& dx) {
                  dx[0] = empty_like(dy);
                  on_device(dy.device(),
                            [&](auto& context) { kernels::unary_backward<Op>(context, saved, dy, dx[0]); });
                });
}

// Op(a, b), not recorded.
template <class Op> Tensor binary(const char* op, const Tensor& a, const Tensor& b) {
  check_floating(op, a);
  check_floating(op, b);
  ATH_CHECK(a.dtype() == b.dtype() && a.device() == b.device(),
            "{}: both tensors must have one dtype and device, but got {} on {} and {} on {}", op, a.dtype(),
            a.device().str(), b.dtype(), b.device().str());
  const Tensor y = Tensor::empty(
      a.shape() == b.shape() ? a.shape() : broadcast_shapes(a.shape(), b.shape(), op), a.options());
  on_device(a.device(), [&](auto& context) { kernels::binary_forward<Op>(context, a, b, y); });
  return y;
}

Tensor scaled(const Tensor& x, double scale, double shift = 0) {
  const Tensor y = empty_like(x);
  on_device(x.device(), [&](auto& context) { kernels::affine(context, x, scale, shift, y); });
  return y;
}

}  // namespace

#define ATH_DEFINE(Op, name)             \
  Tensor name(const Tensor& x) {         \
    return unary<kernels::Op>(#name, x); \
  }
ATH_UNARY_OPS(ATH_DEFINE)
#undef ATH_DEFINE

Tensor add(const Tensor& a, const Tensor& b) {
  const Tensor y = binary<kernels::Add>("add", a, b);
  if (a.shape() == b.shape()) {  // most sums: nothing to undo, nothing to keep
    return record("add", y, {a, b}, [](const Tensor& dy, Grads& dx) {
      dx[0] = dy;
      dx[1] = dy;
    });
  }
  return record("add", y, {a, b}, [a = a.shape(), b = b.shape()](const Tensor& dy, Grads& dx) {
    if (dx.wants(0)) dx[0] = sum_to(dy, a);
    if (dx.wants(1)) dx[1] = sum_to(dy, b);
  });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  const Tensor y = binary<kernels::Sub>("sub", a, b);
  return record("sub", y, {a, b}, [a = a.shape(), b = b.shape()](const Tensor& dy, Grads& dx) {
    if (dx.wants(0)) dx[0] = sum_to(dy, a);
    if (dx.wants(1)) dx[1] = scaled(sum_to(dy, b), -1);
  });
}

// Each side is kept only if the other wants a gradient.
Tensor mul(const Tensor& a, const Tensor& b) {
  const Tensor y = binary<kernels::Mul>("mul", a, b);
  return record("mul", y, {a, b},
                [a_shape = a.shape(), b_shape = b.shape(), a = Saved(b.requires_grad() ? a : Tensor()),
                 b = Saved(a.requires_grad() ? b : Tensor())](const Tensor& dy, Grads& dx) {
                  if (dx.wants(0)) dx[0] = sum_to(binary<kernels::Mul>("mul", dy, b), a_shape);
                  if (dx.wants(1)) dx[1] = sum_to(binary<kernels::Mul>("mul", dy, a), b_shape);
                });
}

// With q = dy / b, the gradients are q and -q y.
Tensor div(const Tensor& a, const Tensor& b) {
  const Tensor y = binary<kernels::Div>("div", a, b);
  return record("div", y, {a, b},
                [a_shape = a.shape(), b_shape = b.shape(), b = Saved(b),
                 y = Saved::output(b.requires_grad() ? y : Tensor())](const Tensor& dy, Grads& dx) {
                  const Tensor q = binary<kernels::Div>("div", dy, b);
                  if (dx.wants(0)) dx[0] = sum_to(q, a_shape);
                  if (dx.wants(1)) dx[1] = sum_to(scaled(binary<kernels::Mul>("div", q, y), -1), b_shape);
                });
}

Tensor affine(const Tensor& x, double scale, double shift) {
  check_floating("affine", x);
  return record("affine", scaled(x, scale, shift), {x},
                [scale](const Tensor& dy, Grads& dx) { dx[0] = scaled(dy, scale); });
}

}  // namespace athanor
