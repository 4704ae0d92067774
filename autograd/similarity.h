#pragma once

#include "autograd/loss.h"
#include "tensor/tensor.h"

namespace athanor {

// Similarity of vectors, and losses based on it. Computed in f32 (f64 for f64) whatever the inputs' dtype;
// the cosine in f64. Inputs have one floating dtype and device, else ArgumentError.

/// The cosine of the angle between a and b along an axis, which is dropped: their dot product over the
/// product of their lengths, each at least eps. a and b broadcast. Returns their dtype.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int axis = 1, double eps = 1e-8);

struct TripletOptions {
  double margin = 1;
  double eps = 1e-6;  ///< added to every difference: keeps the gradient finite
  bool swap = false;  ///< the negative's distance is the smaller of those to anchor and positive
  Reduction reduction = Reduction::mean;
};
/// max(0, margin + d(anchor, positive) - d(anchor, negative)), d being the Euclidean distance along the last
/// axis. All three [..., D], of one shape; the loss is f32 (f64 for f64), [] or [...]. Source: Balntas et al.
/// 2016, "Learning local feature descriptors with triplets and shallow convolutional neural networks" (swap).
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletOptions& options = {});

/// NT-Xent, the symmetric form of InfoNCE: a and b [N, D] are two views of N > 0 samples. Each of the 2N rows
/// must find its other view among the other 2N - 1 rows: cross-entropy over cosine similarities divided by
/// the temperature (> 0). Returns [] f32 (f64 for f64), the mean over the 2N rows. Stores [2N, 2N]
/// similarities. Source: Chen et al. 2020, arXiv:2002.05709, equation 1.
Tensor nt_xent_loss(const Tensor& a, const Tensor& b, double temperature = 0.5);

}  // namespace athanor
