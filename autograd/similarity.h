#pragma once

#include "autograd/loss.h"
#include "tensor/tensor.h"

namespace athanor {

// How near vectors are, and losses that draw them together or apart. Computed in f32 (f64 for f64) whatever
// the inputs are stored as. Inputs have one floating dtype and device, else ArgumentError.

/// The cosine of the angle between a and b along an axis, which goes: their product over the product of their
/// lengths, each of them at least eps. a and b broadcast. Returns their dtype.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int axis = 1, double eps = 1e-8);

struct TripletOptions {
  double margin = 1;
  double eps = 1e-6;  ///< added to every difference, so that none has an infinite slope
  bool swap = false;  ///< the negative's distance is that to the anchor or to the positive: the smaller
  Reduction reduction = Reduction::mean;
};
/// max(0, margin + d(anchor, positive) - d(anchor, negative)), d being the Euclidean distance along the last
/// axis. All three [..., D], of one shape; the loss is f32 (f64 for f64), [] or [...]. Source: Balntas et al.
/// 2016, "Learning local feature descriptors with triplets and shallow convolutional neural networks" (swap).
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletOptions& options = {});

/// NT-Xent, InfoNCE in its symmetric form: a and b [N, D] are two views of N > 0 samples. Each of the 2N rows
/// has the other view of its sample to find among the 2N - 1 other rows, by cross-entropy over cosine
/// similarities divided by the temperature (> 0). Returns [] f32 (f64 for f64): the mean over the 2N rows.
/// Keeps [2N, 2N] similarities. Source: Chen et al. 2020, arXiv:2002.05709, equation 1.
Tensor nt_xent_loss(const Tensor& a, const Tensor& b, double temperature = 0.5);

}  // namespace athanor
