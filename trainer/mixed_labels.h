#pragma once

#include "autograd/elementwise.h"
#include "data/loader.h"

namespace athanor {

/// Combines two results, for an image's own label and its partner's, by their shares.
inline Tensor mix_by_share(const Batch& batch, const Tensor& own, const Tensor& partners) {
  return affine(own, batch.own_share) + affine(partners, 1 - batch.own_share);
}

/// loss(labels) of a batch that --augment mixup or cutmix may have mixed: own_share * loss(own labels) + (1 -
/// own_share) * loss(partners' labels). For Task::training_step() with mixes_labels().
///
///     return mixed_loss(batch, [&](const Tensor& label) { return cross_entropy(logits, label); });
template <class Loss> Tensor mixed_loss(const Batch& batch, const Loss& loss) {
  const Tensor own = loss(batch.labels);
  return batch.partner_labels.defined() ? mix_by_share(batch, own, loss(batch.partner_labels)) : own;
}

/// The label with the larger share of each mixed image, for counting right answers.
inline const Tensor& main_labels(const Batch& batch) {
  return batch.partner_labels.defined() && batch.own_share < 0.5 ? batch.partner_labels : batch.labels;
}

}  // namespace athanor
