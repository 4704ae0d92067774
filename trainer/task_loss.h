#pragma once

#include <cstdint>
#include <string_view>

#include "data/label_kind.h"
#include "tensor/tensor.h"

namespace athanor {

struct Batch;  // data/loader.h

/// The loss of a training step, as `--loss` names it.
enum class LossKind : std::uint8_t { usual, cross_entropy, bce, focal, mse, l1, huber };

/// "cross-entropy", "bce", ...; "usual" is what a task has without --loss.
constexpr std::string_view name_of(LossKind kind) {
  switch (kind) {
    case LossKind::usual: return "usual";
    case LossKind::cross_entropy: return "cross-entropy";
    case LossKind::bce: return "bce";
    case LossKind::focal: return "focal";
    case LossKind::mse: return "mse";
    case LossKind::l1: return "l1";
    case LossKind::huber: return "huber";
  }
  return "?";
}

/// --loss KIND: focal[:GAMMA[:ALPHA]] and huber[:DELTA] have numbers (autograd/loss.h).
struct TaskLoss {
  LossKind kind = LossKind::usual;
  double gamma = 2, alpha = 0.25;
  double delta = 1;
  bool weighs_samples = false;  ///< --sample-weights: times the field "weight" of each sample

  bool operator==(const TaskLoss&) const = default;
};

/// `loss`, or the usual one of these labels: cross-entropy, bce of several labels, mse of numbers. Throws
/// ArgumentError if it is no loss of such labels: classes have cross-entropy, bce or focal, several labels
/// bce or focal, numbers mse, l1 or huber.
TaskLoss loss_for(LabelKind labels, const TaskLoss& loss);

/// A loss between numbers, of each element: output and target [N, K] f32 (f64) to the same shape. Not for
/// cross-entropy. pos_weight, if defined, [K]: the factor of bce's positives, not of another loss.
Tensor loss_of_each(const TaskLoss& loss, const Tensor& output, const Tensor& target,
                    const Tensor& pos_weight = {});

/// The losses of a training step, [N] or [N, K], each times the field "weight" of its sample if the loss asks
/// for it.
Tensor weighted(const TaskLoss& loss, const Tensor& losses, const Batch& batch);

/// The mean of each row: [N, K] to [N].
Tensor mean_of_rows(const Tensor& losses);

}  // namespace athanor
