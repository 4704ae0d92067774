#include "autograd/elementwise.h"

#include "autograd/node.h"
#include "kernels/elementwise.h"

namespace athanor {
namespace {

void check_floating(const char* op, const Tensor& x) {
  ATH_CHECK(x.defined() && is_floating(x.dtype()), "{}: tensor must be floating, but got {}", op,
            x.defined() ? name_of(x.dtype()) : "an undefined tensor");
}

template <class Op> Tensor unary(const char* op, const Tensor& x) {
  check_floating(op, x);
  const Tensor y = Tensor::empty(x.shape(), x.options());
  on_device(x.device(), [&](auto& context) { kernels::unary_forward<Op>(context, x, y); });
  return record(op, y, {x}, [x = Saved(x)](const Tensor& dy, Grads& dx) {
    dx[0] = empty_like(dy);
    on_device(dy.device(), [&](auto& context) { kernels::unary_backward<Op>(context, x, dy, dx[0]); });
  });
}

template <class Op> Tensor binary(const char* op, const Tensor& a, const Tensor& b) {
  check_floating(op, a);
  ATH_CHECK(a.dtype() == b.dtype() && a.device() == b.device(),
            "{}: both tensors must have one dtype and device, but got {} on {} and {} on {}", op, a.dtype(),
            a.device().str(), b.dtype(), b.device().str());
  const Tensor y = Tensor::empty(
      a.shape() == b.shape() ? a.shape() : broadcast_shapes(a.shape(), b.shape(), op), a.options());
  on_device(a.device(), [&](auto& context) { kernels::binary_forward<Op>(context, a, b, y); });
  return y;
}

}  // namespace

Tensor relu(const Tensor& x) {
  return unary<kernels::Relu>("relu", x);
}

Tensor add(const Tensor& a, const Tensor& b) {
  return record("add", binary<kernels::Add>("add", a, b), {a, b}, [](const Tensor& dy, Grads& dx) {
    dx[0] = dy;
    dx[1] = dy;
  });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  return record("mul", binary<kernels::Mul>("mul", a, b), {a, b},
                [a = Saved(a), b = Saved(b)](const Tensor& dy, Grads& dx) {
                  if (dx.wants(0)) dx[0] = binary<kernels::Mul>("mul", dy, b);
                  if (dx.wants(1)) dx[1] = binary<kernels::Mul>("mul", dy, a);
                });
}

}  // namespace athanor
