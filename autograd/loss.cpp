#include "autograd/loss.h"

#include "autograd/detail/dense.h"
#include "autograd/detail/rounded.h"
#include "autograd/node.h"
#include "kernels/loss.h"

namespace athanor {
namespace {

// Losses are f32 (f64 for f64), whatever their inputs are stored as.
TensorOptions loss_options(const Tensor& x) {
  return {x.dtype() == DType::f64 ? DType::f64 : DType::f32, x.device()};
}

double scale_of(Reduction reduction, std::int64_t n) {
  return reduction == Reduction::mean ? 1.0 / static_cast<double>(n) : 1.0;
}

void check_classes(const char* op, const Tensor& x, const Tensor& target) {
  ATH_CHECK(x.defined() && target.defined(), "{}: input and target must be tensors, but one is undefined",
            op);
  ATH_CHECK(is_floating(x.dtype()) && x.rank() == 2 && x.shape()[1] > 0,
            "{}: input must be floating [N, C] with C > 0, but got {} {}", op, x.dtype(), x.shape());
  ATH_CHECK(target.dtype() == DType::i64 && target.shape() == Shape({x.shape()[0]}),
            "{}: target must be i64 [{}], but got {} {}", op, x.shape()[0], target.dtype(), target.shape());
  ATH_CHECK(x.device() == target.device(), "{}: target must be on {}, but is on {}", op, x.device().str(),
            target.device().str());
  on_device(x.device(), [&](auto& context) { kernels::check_target(context, op, target, x.shape()[1]); });
}

// One loss per row, or one for all.
Tensor rows_result(const Tensor& x, Reduction reduction) {
  return Tensor::empty(reduction == Reduction::none ? Shape({x.shape()[0]}) : Shape(), loss_options(x));
}

/// The loss that is asked for (of Reduction::none, `losses` itself), and those of the samples.
CrossEntropy run_cross_entropy(const Tensor& logits, const Tensor& target, double label_smoothing,
                               Reduction reduction) {
  check_classes("cross_entropy", logits, target);
  ATH_CHECK(label_smoothing >= 0 && label_smoothing <= 1,
            "cross_entropy: label_smoothing must be in [0, 1], but got {}", label_smoothing);
  const double smoothing = rounded(label_smoothing, logits), scale = scale_of(reduction, logits.shape()[0]);
  const Tensor x = dense(logits), t = dense(target);
  const Tensor stats = Tensor::empty({x.shape()[0], 2}, loss_options(x));
  const Tensor losses = rows_result(x, Reduction::none);
  const Tensor total = reduction == Reduction::none ? Tensor() : rows_result(x, reduction);
  on_device(x.device(), [&](auto& context) {
    kernels::cross_entropy_forward(context, x, t, smoothing, scale, stats, losses, total);
  });
  const Tensor y = record(
      "cross_entropy", total.defined() ? total : losses, {logits},
      [x = Saved(x), t = Saved(t), stats = Saved(stats), smoothing, scale](const Tensor& dy, Grads& dx) {
        dx[0] = empty_like(x);
        on_device(dy.device(), [&](auto& context) {
          kernels::cross_entropy_backward(context, x, t, stats, smoothing, scale, dy, dx[0]);
        });
      });
  return {y, losses};
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, double label_smoothing,
                     Reduction reduction) {
  return run_cross_entropy(logits, target, label_smoothing, reduction).mean;
}

CrossEntropy cross_entropy_of_each(const Tensor& logits, const Tensor& target, double label_smoothing) {
  return run_cross_entropy(logits, target, label_smoothing, Reduction::mean);
}

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, Reduction reduction) {
  check_classes("nll_loss", log_probs, target);
  const double scale = scale_of(reduction, log_probs.shape()[0]);
  const Tensor x = dense(log_probs), t = dense(target);
  const Tensor y = rows_result(x, reduction);
  on_device(x.device(), [&](auto& context) { kernels::nll_forward(context, x, t, scale, y); });
  return record("nll_loss", y, {log_probs},
                [shape = x.shape(), options = x.options(), t = Saved(t), scale](const Tensor& dy, Grads& dx) {
                  dx[0] = Tensor::empty(shape, options);
                  on_device(dy.device(),
                            [&](auto& context) { kernels::nll_backward(context, t, scale, dy, dx[0]); });
                });
}

Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  ATH_CHECK(a.defined() && b.defined(), "mse_loss: a and b must be tensors, but one is undefined");
  ATH_CHECK(
      is_floating(a.dtype()) && a.dtype() == b.dtype() && a.shape() == b.shape() && a.device() == b.device(),
      "mse_loss: a and b must have one shape, floating dtype and device, but got {} {} on {} and {} {} on {}",
      a.dtype(), a.shape(), a.device().str(), b.dtype(), b.shape(), b.device().str());
  const double scale = scale_of(reduction, a.numel());
  const Tensor left = dense(a), right = dense(b);
  const bool each = reduction == Reduction::none;
  const Tensor y = Tensor::empty(each ? a.shape() : Shape(), loss_options(a));
  on_device(a.device(), [&](auto& context) {
    each ? kernels::squared_difference(context, left, right, y)
         : kernels::mse_forward(context, left, right, scale, y);
  });
  return record("mse_loss", y, {a, b},
                [a = Saved(left), b = Saved(right), scale](const Tensor& seed, Grads& dx) {
                  const Tensor dy = dense(seed);
                  on_device(dy.device(), [&](auto& context) {
                    if (dx.wants(0)) kernels::mse_backward(context, a, b, scale, dy, dx[0] = empty_like(a));
                    if (dx.wants(1)) kernels::mse_backward(context, b, a, scale, dy, dx[1] = empty_like(b));
                  });
                });
}

}  // namespace athanor
