#include "autograd/elementwise.h"

#include "autograd/detail/affine.h"
#include "autograd/detail/dense.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "kernels/elementwise.h"
#include "kernels/on_device.h"

namespace athanor {
namespace {

// Checks the operand of Op: a floating tensor, or any number.
template <class Op> void check_operand(const char* op, const Tensor& x) {
  if constexpr (kernels::kTakesIntegers<Op>) {
    ATH_CHECK(x.defined() && x.dtype() != DType::boolean, "{}: tensor must hold numbers, but got {}", op,
              x.defined() ? name_of(x.dtype()) : "an undefined tensor");
  } else {
    check_floating(op, x);
  }
}

template <class Op> Tensor unary(const char* op, const Tensor& x) {
  check_operand<Op>(op, x);
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
  check_operand<Op>(op, a);
  check_operand<Op>(op, b);
  check_alike(op, "both tensors must have one dtype and device", a, b, !kernels::kTakesIntegers<Op>);
  const Tensor y = Tensor::empty(
      a.shape() == b.shape() ? a.shape() : broadcast_shapes(a.shape(), b.shape(), op), a.options());
  if constexpr (kernels::kRefusesZero<Op>) {
    if (!is_floating(b.dtype()) && y.numel() > 0)
      on_device(b.device(), [&](auto& context) { kernels::check_divisors(context, op, b); });
  }
  on_device(a.device(), [&](auto& context) { kernels::binary_forward<Op>(context, a, b, y); });
  return y;
}

// An op of ATH_BINARY_OPS_WITH_GRADIENTS.
template <class Op> Tensor binary_with_gradients(const char* op, const Tensor& a, const Tensor& b) {
  return record(op, binary<Op>(op, a, b), {a, b}, [a = Saved(a), b = Saved(b)](const Tensor& dy, Grads& dx) {
    for (int i = 0; i < 2; ++i) {
      if (!dx.needs(i)) continue;
      const Tensor full = empty_like(dy);
      on_device(dy.device(),
                [&](auto& context) { kernels::binary_backward<Op>(context, i, a, b, dy, full); });
      dx[i] = sum_to(full, (i == 0 ? a : b).get().shape());
    }
  });
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
  if (a.shape() == b.shape()) {  // the most common case needs no reduction and saves nothing
    return record("add", y, {a, b}, [](const Tensor& dy, Grads& dx) {
      dx[0] = dy;
      dx[1] = dy;
    });
  }
  return record("add", y, {a, b}, [a = a.shape(), b = b.shape()](const Tensor& dy, Grads& dx) {
    if (dx.needs(0)) dx[0] = sum_to(dy, a);
    if (dx.needs(1)) dx[1] = sum_to(dy, b);
  });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  const Tensor y = binary<kernels::Sub>("sub", a, b);
  return record("sub", y, {a, b}, [a = a.shape(), b = b.shape()](const Tensor& dy, Grads& dx) {
    if (dx.needs(0)) dx[0] = sum_to(dy, a);
    if (dx.needs(1)) dx[1] = detail::affine(sum_to(dy, b), -1);
  });
}

// Saves each operand only if the other needs a gradient.
Tensor mul(const Tensor& a, const Tensor& b) {
  const Tensor y = binary<kernels::Mul>("mul", a, b);
  return record("mul", y, {a, b},
                [a_shape = a.shape(), b_shape = b.shape(), a = Saved(b.requires_grad() ? a : Tensor()),
                 b = Saved(a.requires_grad() ? b : Tensor())](const Tensor& dy, Grads& dx) {
                  if (dx.needs(0)) dx[0] = sum_to(binary<kernels::Mul>("mul", dy, b), a_shape);
                  if (dx.needs(1)) dx[1] = sum_to(binary<kernels::Mul>("mul", dy, a), b_shape);
                });
}

// With q = dy / b, the gradients are q and -q y.
Tensor div(const Tensor& a, const Tensor& b) {
  ATH_CHECK(!a.defined() || is_floating(a.dtype()),
            "div: tensors must be floating, but the first is {}: cast() both, for example to f32", a.dtype());
  const Tensor y = binary<kernels::Div>("div", a, b);
  return record("div", y, {a, b},
                [a_shape = a.shape(), b_shape = b.shape(), b = Saved(b),
                 a = Saved(b.requires_grad() ? a : Tensor())](const Tensor& dy, Grads& dx) {
                  if (dx.needs(0)) dx[0] = sum_to(binary<kernels::Div>("div", dy, b), a_shape);
                  if (!dx.needs(1)) return;
                  const Tensor full = empty_like(dy);
                  on_device(dy.device(), [&](auto& context) {
                    kernels::binary_backward<kernels::Div>(context, 1, a, b, dy, full);
                  });
                  dx[1] = sum_to(full, b_shape);
                });
}

Tensor floor_divide(const Tensor& a, const Tensor& b) {
  const Tensor y = binary<kernels::FloorDivide>("floor_divide", a, b);
  return record("floor_divide", y, {a, b}, [a = a.shape(), b = b.shape()](const Tensor& dy, Grads& dx) {
    if (dx.needs(0)) dx[0] = Tensor::zeros(a, dy.options());
    if (dx.needs(1)) dx[1] = Tensor::zeros(b, dy.options());
  });
}

#define ATH_DEFINE(Op, name)                                \
  Tensor name(const Tensor& a, const Tensor& b) {           \
    return binary_with_gradients<kernels::Op>(#name, a, b); \
  }
ATH_BINARY_OPS_WITH_GRADIENTS(ATH_DEFINE)
#undef ATH_DEFINE

Tensor neg(const Tensor& x) {
  check_operand<kernels::Sub>("neg", x);
  if (is_floating(x.dtype())) return affine(x, -1);
  const Tensor zero = Tensor::zeros({}, x.options());
  return record("neg", binary<kernels::Sub>("neg", zero, x), {zero, x});
}

Tensor affine(const Tensor& x, double scale, double shift) {
  check_floating("affine", x);
  const Tensor y = detail::affine(x, scale, shift);
  return record({"affine", {{"scale", {scale}}, {"shift", {shift}}}}, y, {x},
                [scale](const Tensor& dy, Grads& dx) { dx[0] = detail::affine(dy, scale); });
}

}  // namespace athanor
