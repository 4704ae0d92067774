#include <cmath>

#include "autograd/creation.h"
#include "autograd/detail/dense.h"
#include "autograd/detail/losses.h"
#include "autograd/elementwise.h"
#include "autograd/loss.h"
#include "autograd/node.h"
#include "autograd/shape.h"
#include "kernels/loss.h"
#include "kernels/on_device.h"

namespace athanor {
namespace {

using detail::loss_options;

void check_pair(const char* op, const Tensor& a, const Tensor& b) {
  ATH_CHECK(a.defined() && b.defined(), "{}: both inputs must be tensors, but one is undefined", op);
  ATH_CHECK(
      is_floating(a.dtype()) && a.dtype() == b.dtype() && a.shape() == b.shape() && a.device() == b.device(),
      "{}: both inputs must have one shape, floating dtype and device, but got {} {} on {} and {} {} on {}{}",
      op, a.dtype(), a.shape(), a.device().str(), b.dtype(), b.shape(), b.device().str(),
      cast_hint("a", a, "b", b));
}

// The loss of each element, or (not `each`) scale times their sum. If the op has a `weight`, it is dense and
// shaped like a.
template <class Op>
Tensor run(const char* name, const Op& op, const Tensor& a, const Tensor& b, const Tensor& weight, bool each,
           double scale) {
  const Tensor left = dense(a), right = dense(b);
  const Tensor y = Tensor::empty(each ? a.shape() : Shape(), loss_options(a));
  on_device(a.device(), [&](auto& context) {
    each ? kernels::pair_loss(context, op, left, right, weight, y)
         : kernels::pair_loss_sum(context, op, left, right, weight, scale, y);
  });
  return record(
      name, y, {a, b},
      [op, a = Saved(left), b = Saved(right), weight = Saved(weight), scale](const Tensor& seed, Grads& dx) {
        const Tensor dy = dense(seed);
        on_device(dy.device(), [&](auto& context) {
          if (dx.needs(0))
            kernels::pair_loss_backward(context, op, a, b, weight, scale, dy, dx[0] = empty_like(a));
          if (!dx.needs(1)) return;
          dx[1] = empty_like(b);
          if constexpr (Op::kSymmetric) {
            kernels::pair_loss_backward(context, op, b, a, weight, scale, dy, dx[1]);
          } else {
            kernels::pair_loss_backward(context, kernels::OfTarget<Op>{op}, a, b, weight, scale, dy, dx[1]);
          }
        });
      });
}

template <class Op>
Tensor run(const char* name, const Op& op, const Tensor& a, const Tensor& b, Reduction reduction,
           const Tensor& weight = {}) {
  const bool mean = reduction == Reduction::mean;
  return run(name, op, a, b, weight, reduction == Reduction::none,
             mean ? 1.0 / static_cast<double>(a.numel()) : 1.0);
}

// Checks a weight, to be broadcast to the shape of the logits.
void check_weight(const char* name, const Tensor& weight, const Tensor& logits) {
  const DType dtype = wide_dtype(logits);
  ATH_CHECK(weight.dtype() == dtype && weight.device() == logits.device() &&
                broadcasts_to(weight.shape(), logits.shape()),
            "bce_with_logits: {} must be {} on {} of a shape that broadcasts to {}, but got {} on {} of {}{}",
            name, dtype, logits.device().str(), logits.shape(), weight.dtype(), weight.device().str(),
            weight.shape(), cast_hint(name, weight, dtype, logits.device()));
}

}  // namespace

Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  check_pair("mse_loss", a, b);
  return run("mse_loss", kernels::SquaredError{}, a, b, reduction);
}

Tensor l1_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  check_pair("l1_loss", a, b);
  return run("l1_loss", kernels::AbsoluteError{}, a, b, reduction);
}

Tensor smooth_l1_loss(const Tensor& a, const Tensor& b, double beta, Reduction reduction) {
  check_pair("smooth_l1_loss", a, b);
  ATH_CHECK(beta >= 0 && std::isfinite(beta), "smooth_l1_loss: beta must be finite and >= 0, but got {}",
            beta);
  if (beta == 0) return run("smooth_l1_loss", kernels::AbsoluteError{}, a, b, reduction);
  return run("smooth_l1_loss", kernels::SmoothL1{beta}, a, b, reduction);
}

Tensor huber_loss(const Tensor& a, const Tensor& b, double delta, Reduction reduction) {
  check_pair("huber_loss", a, b);
  ATH_CHECK(delta > 0 && std::isfinite(delta), "huber_loss: delta must be finite and > 0, but got {}", delta);
  return run("huber_loss", kernels::Huber{delta}, a, b, reduction);
}

Tensor kl_div(const Tensor& input, const Tensor& target, bool log_target, KlReduction reduction) {
  check_pair("kl_div", input, target);
  const double elements = static_cast<double>(input.numel());
  double scale = 1;
  if (reduction == KlReduction::mean) scale = 1 / elements;
  if (reduction == KlReduction::batchmean && input.rank() > 0)
    scale = 1 / static_cast<double>(input.shape()[0]);
  const bool each = reduction == KlReduction::none;
  return log_target ? run("kl_div", kernels::LogKlDivergence{}, input, target, {}, each, scale)
                    : run("kl_div", kernels::KlDivergence{}, input, target, {}, each, scale);
}

Tensor bce_with_logits(const Tensor& logits, const Tensor& target, const BceOptions& options) {
  check_pair("bce_with_logits", logits, target);
  const Tensor &weight = options.weight, &pos_weight = options.pos_weight;
  if (weight.defined()) check_weight("weight", weight, logits);
  if (pos_weight.defined()) {
    check_weight("pos_weight", pos_weight, logits);
    ATH_CHECK(!pos_weight.requires_grad(), "bce_with_logits: pos_weight must not need a gradient, but does");
  }
  const auto loss = [&](Reduction how) {
    if (!pos_weight.defined()) return run("bce_with_logits", kernels::BceWithLogits{}, logits, target, how);
    return run("bce_with_logits", kernels::WeightedBceWithLogits{}, logits, target, how,
               contiguous(expand(pos_weight, logits.shape())));
  };
  if (!weight.defined()) return loss(options.reduction);
  return detail::reduced(loss(Reduction::none) * weight, options.reduction);
}

Tensor sigmoid_focal_loss(const Tensor& logits, const Tensor& target, double gamma, double alpha,
                          Reduction reduction) {
  check_pair("sigmoid_focal_loss", logits, target);
  ATH_CHECK(gamma >= 0 && std::isfinite(gamma),
            "sigmoid_focal_loss: gamma must be finite and >= 0, but got {}", gamma);
  ATH_CHECK(alpha <= 1, "sigmoid_focal_loss: alpha must be at most 1, but got {}", alpha);
  return run("sigmoid_focal_loss", kernels::SigmoidFocal{gamma, alpha}, logits, target, reduction);
}

Tensor bce_with_logits(const Tensor& logits, double target, const BceOptions& options) {
  check_floating("bce_with_logits", logits);
  return bce_with_logits(logits, full(logits.shape(), target, logits.options()), options);
}

}  // namespace athanor
