#pragma once

#include "autograd/elementwise.h"
#include "data/loader.h"

namespace athanor {

/// What two results, by an image's own label and by its partner's, come to by their shares.
inline Tensor by_shares(const Batch& batch, const Tensor& own, const Tensor& partners) {
  return affine(own, batch.own_share) + affine(partners, 1 - batch.own_share);
}

/// loss(labels) of a batch, which --augment mixup or cutmix may have mixed: own_share * loss(its own) +
/// (1 - own_share) * loss(its partners'). For Task::training_step() where mixes_labels() is true.
///
///     return mixed_loss(batch, [&](const Tensor& label) { return cross_entropy(logits, label); });
template <class Loss> Tensor mixed_loss(const Batch& batch, const Loss& loss) {
  const Tensor own = loss(batch.labels);
  return batch.partner_labels.defined() ? by_shares(batch, own, loss(batch.partner_labels)) : own;
}

/// The labels that most of a mixed image belongs to: what right answers are counted by.
inline const Tensor& main_labels(const Batch& batch) {
  return batch.partner_labels.defined() && batch.own_share < 0.5 ? batch.partner_labels : batch.labels;
}

}  // namespace athanor
