#pragma once

#include <optional>

#include "tensor/tensor.h"

namespace athanor {

struct AttentionOptions {
  /// Broadcasts to [..., L, S]. bool: where it is false, the query takes nothing from that key; without any
  /// other it gets zeros. Floating, of the queries' dtype: added to the scores (NaN if all are -infinity).
  Tensor mask = {};
  /// Query i takes nothing from keys beyond the i-th.
  bool causal = false;
  /// What scores are multiplied by; 1 / sqrt(D) where it is left out.
  std::optional<double> scale = {};
  /// Of a weight, after the softmax: the probability of being zeroed, while the rest are scaled by 1 / (1 -
  /// p) (dropout()). For training: whoever evaluates leaves it at 0.
  float dropout = 0;
};
/// softmax(scale q k^T + mask) v: for each query a mean of the values, by how well it agrees with their keys.
/// q [..., L, D], k [..., S, D], v [..., S, E] -> [..., L, E]; leading axes broadcast; one floating dtype and
/// device; in f32 (f64 for f64), and rounded once. Meant for short sequences: keeps scores [..., L, S].
/// Throws ArgumentError on dtypes, devices and shapes that do not fit. Source: Vaswani et al. 2017,
/// arXiv:1706.03762, equation 1.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

}  // namespace athanor
