#pragma once

#include "autograd/loss.h"

namespace athanor::nn {

// Losses with their options bound, to pass as one object: loss(output, target).

/// See cross_entropy() in autograd/loss.h.
struct CrossEntropyLoss {
  double label_smoothing = 0;
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& logits, const Tensor& target) const {
    return cross_entropy(logits, target, label_smoothing, reduction);
  }
};

/// See nll_loss() in autograd/loss.h.
struct NllLoss {
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& log_probs, const Tensor& target) const {
    return nll_loss(log_probs, target, reduction);
  }
};

/// See mse_loss() in autograd/loss.h.
struct MseLoss {
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& a, const Tensor& b) const { return mse_loss(a, b, reduction); }
};

}  // namespace athanor::nn
