#pragma once

#include "autograd/loss.h"
#include "autograd/similarity.h"

namespace athanor::nn {

// Losses with their options bound, to be passed as one object: loss(output, target).

/// See cross_entropy() in autograd/loss.h.
struct CrossEntropyLoss {
  double label_smoothing = 0;
  Reduction reduction = Reduction::mean;
  std::optional<std::int64_t> ignore_index = {};
  Tensor weight = {};
  Tensor operator()(const Tensor& logits, const Tensor& target) const {
    return cross_entropy(logits, target, {label_smoothing, reduction, ignore_index, weight});
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

/// See l1_loss() in autograd/loss.h.
struct L1Loss {
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& a, const Tensor& b) const { return l1_loss(a, b, reduction); }
};

/// See smooth_l1_loss() in autograd/loss.h.
struct SmoothL1Loss {
  double beta = 1;
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& a, const Tensor& b) const { return smooth_l1_loss(a, b, beta, reduction); }
};

/// See huber_loss() in autograd/loss.h.
struct HuberLoss {
  double delta = 1;
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& a, const Tensor& b) const { return huber_loss(a, b, delta, reduction); }
};

/// See kl_div() in autograd/loss.h.
struct KlDivLoss {
  bool log_target = false;
  KlReduction reduction = KlReduction::mean;
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return kl_div(input, target, log_target, reduction);
  }
};

/// See bce_with_logits() in autograd/loss.h.
struct BceWithLogitsLoss {
  BceOptions options = {};
  Tensor operator()(const Tensor& logits, const Tensor& target) const {
    return bce_with_logits(logits, target, options);
  }
  Tensor operator()(const Tensor& logits, double target) const {
    return bce_with_logits(logits, target, options);
  }
};

/// See cosine_similarity() in autograd/similarity.h.
struct CosineSimilarity {
  int axis = 1;
  double eps = 1e-8;
  Tensor operator()(const Tensor& a, const Tensor& b) const { return cosine_similarity(a, b, axis, eps); }
};

/// See triplet_margin_loss() in autograd/similarity.h.
struct TripletMarginLoss {
  TripletOptions options = {};
  Tensor operator()(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const {
    return triplet_margin_loss(anchor, positive, negative, options);
  }
};

}  // namespace athanor::nn
