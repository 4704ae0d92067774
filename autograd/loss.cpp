#include "autograd/loss.h"

#include "autograd/creation.h"
#include "autograd/detail/dense.h"
#include "autograd/detail/losses.h"
#include "autograd/elementwise.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "autograd/softmax.h"
#include "kernels/loss.h"
#include "kernels/on_device.h"

namespace athanor {
namespace {

using detail::loss_options;

double scale_of(Reduction reduction, std::int64_t n) {
  return reduction == Reduction::mean ? 1.0 / static_cast<double>(n) : 1.0;
}

void check_classes(const char* op, const Tensor& x, const Tensor& target) {
  ATH_CHECK(x.defined() && target.defined(), "{}: input and target must be tensors, but one is undefined",
            op);
  ATH_CHECK(is_floating(x.dtype()) && x.rank() == 2 && x.shape()[1] > 0,
            "{}: input must be floating [N, C] with C > 0, but got {} {}", op, x.dtype(), x.shape());
  ATH_CHECK(target.dtype() == DType::i64 && target.shape() == Shape({x.shape()[0]}),
            "{}: target must be i64 [{}], but got {} {}{}", op, x.shape()[0], target.dtype(), target.shape(),
            cast_hint("target", target, DType::i64, target.device()));
  ATH_CHECK(x.device() == target.device(), "{}: target must be on {}, but is on {}", op, x.device().str(),
            target.device().str());
  on_device(x.device(), [&](auto& context) { kernels::check_target(context, op, target, x.shape()[1]); });
}

// One loss per row, or a single one.
Tensor rows_result(const Tensor& x, Reduction reduction) {
  return Tensor::empty(reduction == Reduction::none ? Shape({x.shape()[0]}) : Shape(), loss_options(x));
}

void check_smoothing(double smoothing) {
  ATH_CHECK(smoothing >= 0 && smoothing <= 1, "cross_entropy: label_smoothing must be in [0, 1], but got {}",
            smoothing);
}

/// The requested loss (for Reduction::none, `losses` itself), and the losses of samples.
CrossEntropy run_cross_entropy(const Tensor& logits, const Tensor& target, double label_smoothing,
                               Reduction reduction) {
  check_classes("cross_entropy", logits, target);
  check_smoothing(label_smoothing);
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

// The losses [N] of logits [N, C] against distributions [N, C]; for smoothing 1, target may be
// undefined.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& weight,
                          double label_smoothing) {
  const double smoothing = rounded(label_smoothing, logits);
  const Tensor x = dense(logits), q = target.defined() ? dense(target) : Tensor();
  const Tensor stats = Tensor::empty({x.shape()[0], 3}, loss_options(x));
  const Tensor losses = rows_result(x, Reduction::none);
  on_device(x.device(), [&](auto& context) {
    kernels::soft_cross_entropy_forward(context, x, q, weight, smoothing, stats, losses);
  });
  return record("cross_entropy", losses, {logits, target},
                [x = Saved(x), q = Saved(q), weight = Saved(weight), stats = Saved(stats), smoothing](
                    const Tensor& dy, Grads& dx) {
                  if (dx.needs(0)) {
                    dx[0] = empty_like(x);
                    on_device(dy.device(), [&](auto& context) {
                      kernels::soft_cross_entropy_backward(context, x, q, weight, smoothing, stats, dy,
                                                           dx[0]);
                    });
                  }
                  if (!q.defined() || !dx.needs(1)) return;
                  const Tensor& in = x;
                  Tensor dq = log_softmax(cast(in, dy.dtype())) * unsqueeze(dy, 1);
                  if (weight.defined()) dq = dq * weight;
                  dx[1] = cast(affine(dq, smoothing - 1), in.dtype());
                });
}

// The inputs of the general cross-entropy as rows: logits [N, C], and target [N] i64 or [N, C].
struct Rows {
  Tensor logits, target;
  Shape shape;  // of the losses
  bool soft;

  Rows(const Tensor& x, const Tensor& t) {
    ATH_CHECK(x.defined() && t.defined(),
              "cross_entropy: input and target must be tensors, but one is undefined");
    ATH_CHECK(is_floating(x.dtype()) && x.rank() > 0 && x.dim(-1) > 0,
              "cross_entropy: input must be floating [N, ..., C] with C > 0, but got {} {}", x.dtype(),
              x.shape());
    for (int axis = 0; axis + 1 < x.rank(); ++axis) shape.push_back(x.shape()[axis]);
    soft = is_floating(t.dtype());
    if (soft) {
      ATH_CHECK(t.dtype() == x.dtype() && t.shape() == x.shape() && t.device() == x.device(),
                "cross_entropy: distributions must be {} {} on {} like the input, but got {} {} on {}{}",
                x.dtype(), x.shape(), x.device().str(), t.dtype(), t.shape(), t.device().str(),
                cast_hint("target", t, x.dtype(), x.device()));
    } else {
      ATH_CHECK((t.dtype() == DType::i64 || t.dtype() == DType::i32 || t.dtype() == DType::u8) &&
                    t.shape() == shape,
                "cross_entropy: target must be i64, i32 or u8 {}, or a distribution {} {}, but got {} {}",
                shape, x.dtype(), x.shape(), t.dtype(), t.shape());
    }
    const Shape rows{shape.numel(), x.dim(-1)};
    logits = x.rank() == 2 ? x : reshape(x, rows);
    target = soft ? (x.rank() == 2 ? t : reshape(t, rows))
                  : cast(t.rank() == 1 ? t : reshape(t, {rows[0]}), DType::i64);
  }
};

// Reduces the losses of rows as requested.
Tensor reduced(const Tensor& losses, const Shape& shape, Reduction reduction) {
  const Tensor y = detail::reduced(losses, reduction);
  return reduction != Reduction::none || y.shape() == shape ? y : reshape(y, shape);
}

// For weighted or ignored targets: one loss per row, then the weights of rows.
Tensor weighted_cross_entropy(const Rows& rows, const CrossEntropyOptions& options) {
  const TensorOptions wide = loss_options(rows.logits);
  const Tensor& weight = options.weight;
  Tensor target = rows.target, kept;
  if (options.ignore_index) {
    const Tensor given = dense(target);
    target = empty_like(given);
    kept = Tensor::empty(given.shape(), {DType::boolean, given.device()});
    on_device(given.device(), [&](auto& context) {
      kernels::split_ignored(context, given, *options.ignore_index, target, kept);
    });
  }
  const double smoothing = weight.defined() ? 0 : options.label_smoothing;
  Tensor losses = run_cross_entropy(rows.logits, target, smoothing, Reduction::none).mean;
  Tensor counts = weight.defined() ? index_select(weight, 0, target) : ones(losses.shape(), wide);
  if (weight.defined()) losses = losses * affine(counts, 1 - options.label_smoothing);
  if (weight.defined() && options.label_smoothing > 0)
    losses = losses + affine(soft_cross_entropy(rows.logits, {}, weight, 1), options.label_smoothing);
  if (kept.defined()) {
    const Tensor zero = zeros({}, wide);
    losses = where(kept, losses, zero);
    counts = where(kept, counts, zero);
  }
  if (options.reduction == Reduction::mean) return sum(losses) / sum(counts);
  return reduced(losses, rows.shape, options.reduction);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, double label_smoothing,
                     Reduction reduction) {
  return cross_entropy(logits, target, {.label_smoothing = label_smoothing, .reduction = reduction});
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  const auto& [smoothing, reduction, ignore_index, weight] = options;
  check_smoothing(smoothing);
  const Rows rows(logits, target);
  if (weight.defined()) {
    check_dense("cross_entropy", "weight", weight, loss_options(logits).dtype, {logits.dim(-1)},
                logits.device());
    ATH_CHECK(!weight.requires_grad(), "cross_entropy: weight must not need a gradient, but does");
  }
  if (rows.soft) {
    ATH_CHECK(!ignore_index, "cross_entropy: ignore_index must not be set for distributions, but is {}",
              *ignore_index);
    return reduced(soft_cross_entropy(rows.logits, rows.target, weight, smoothing), rows.shape, reduction);
  }
  if (weight.defined() || ignore_index) return weighted_cross_entropy(rows, options);
  const Tensor loss = run_cross_entropy(rows.logits, rows.target, smoothing, reduction).mean;
  return reduction == Reduction::none ? reduced(loss, rows.shape, reduction) : loss;
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

}  // namespace athanor
