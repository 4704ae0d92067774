#pragma once  // Explained in docs/attention.md.

#include <cstdint>

#include "autograd/attention.h"
#include "nn/linear.h"
#include "nn/module.h"

namespace athanor::nn {

struct MultiheadAttentionOptions {
  std::int64_t heads = 1;
  bool bias = true;
  bool causal = false;  ///< a position ignores all later ones
  double dropout = 0;   ///< probability of zeroing an attention weight in training
};

/// Multi-head self-attention: x [B, T, E] -> [B, T, E]. One product computes queries, keys and values from x,
/// each head attends with E / heads of their channels, and a second product mixes the heads' results.
/// Parameters, named and laid out as in PyTorch: in_proj_weight [3E, E] and in_proj_bias [3E] (queries, keys,
/// values), out_proj.weight [E, E], out_proj.bias [E]. Source: Vaswani et al. 2017, arXiv:1706.03762, section
/// 3.2.2.
class MultiheadAttention final : public Module {
 public:
  MultiheadAttention(std::int64_t channels, const MultiheadAttentionOptions& options);

  Tensor forward(const Tensor& x) override { return attend(x, {}); }
  /// With a mask that broadcasts to [B, heads, T, T]: see scaled_dot_product_attention().
  Tensor forward(const Tensor& x, const Tensor& mask);

 private:
  void reset(const InitKeys& keys) override;
  Tensor attend(const Tensor& x, const Tensor& mask);

  std::int64_t channels_;
  MultiheadAttentionOptions options_;
  Tensor in_weight_, in_bias_;
  Linear out_;
};

}  // namespace athanor::nn
