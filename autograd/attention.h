#pragma once  // Explained in docs/attention.md.

#include <optional>

#include "tensor/tensor.h"

namespace athanor {

struct AttentionOptions {
  /// Broadcasts to [..., L, S]. bool: false excludes a key from a query; a query with every key excluded gets
  /// zeros. Floating, in q's dtype: added to the scores (a row of all -infinity gives NaN).
  Tensor mask = {};
  /// Query i ignores keys after the i-th.
  bool causal = false;
  /// Factor for the scores; 1 / sqrt(D) by default.
  std::optional<double> scale = {};
  /// Probability of zeroing an attention weight after the softmax; the rest are scaled by 1 / (1 - p), as in
  /// dropout(). For training only: leave it at 0 in evaluation.
  float dropout = 0;
};
/// softmax(scale q k^T + mask) v: for each query, the mean of the values, weighted by its match with their
/// keys. q [..., L, D], k [..., S, D], v [..., S, E] -> [..., L, E]; leading axes broadcast. One floating
/// dtype and device; computed in f32 (f64 for f64), rounded once. For short sequences: stores the scores
/// [..., L, S]. Throws ArgumentError on mismatched dtypes, devices or shapes. Source: Vaswani et al. 2017,
/// arXiv:1706.03762, equation 1.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

}  // namespace athanor
