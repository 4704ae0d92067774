#include "trainer/task_loss.h"

#include <algorithm>
#include <array>
#include <span>

#include <fmt/ranges.h>

#include "autograd/elementwise.h"
#include "autograd/loss.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "data/loader.h"
#include "data/sample_weights.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

/// The losses of such labels; the first is the usual one.
std::span<const LossKind> losses_of(LabelKind labels) {
  using enum LossKind;
  static constexpr std::array kOfClasses{cross_entropy, bce, focal}, kOfNumbers{mse, l1, huber};
  switch (labels) {
    case LabelKind::classes: return kOfClasses;
    case LabelKind::multilabel: return std::span(kOfClasses).subspan(1);
    case LabelKind::values: return kOfNumbers;
  }
  return {};
}

}  // namespace

TaskLoss loss_for(LabelKind labels, const TaskLoss& loss) {
  const std::span<const LossKind> all = losses_of(labels);
  TaskLoss chosen = loss;
  if (chosen.kind == LossKind::usual) chosen.kind = all.front();
  std::vector<std::string_view> names;
  for (const LossKind kind : all) names.push_back(name_of(kind));
  ATH_CHECK(std::ranges::find(all, chosen.kind) != all.end(), "--loss: must be {} with --task {}, but is {}",
            fmt::join(names, " or "), name_of(labels), name_of(chosen.kind));
  return chosen;
}

Tensor loss_of_each(const TaskLoss& loss, const Tensor& output, const Tensor& target,
                    const Tensor& pos_weight) {
  constexpr Reduction kNone = Reduction::none;
  switch (loss.kind) {
    case LossKind::bce:
      return bce_with_logits(output, target, {.pos_weight = pos_weight, .reduction = kNone});
    case LossKind::focal: return sigmoid_focal_loss(output, target, loss.gamma, loss.alpha, kNone);
    case LossKind::mse: return mse_loss(output, target, kNone);
    case LossKind::l1: return l1_loss(output, target, kNone);
    case LossKind::huber: return huber_loss(output, target, loss.delta, kNone);
    case LossKind::usual:
    case LossKind::cross_entropy: break;
  }
  detail::fail<>("loss: must be of numbers, but is {}", name_of(loss.kind));
}

Tensor weighted(const TaskLoss& loss, const Tensor& losses, const Batch& batch) {
  if (!loss.weighs_samples) return losses;
  Shape each(losses.shape());
  for (int axis = 1; axis < losses.rank(); ++axis) each[axis] = 1;
  return losses * reshape(cast(batch[kWeightField], losses.dtype()), each);
}

Tensor mean_of_rows(const Tensor& losses) {
  return mean(losses, std::array{1});
}

}  // namespace athanor
