#include "nn/attention.h"

#include "autograd/matmul.h"
#include "autograd/op_observer.h"
#include "autograd/shape.h"
#include "nn/init.h"

namespace athanor::nn {

MultiheadAttention::MultiheadAttention(std::int64_t channels, const MultiheadAttentionOptions& options)
    : channels_(channels),
      options_(options),
      out_(channels, channels,
           {.bias = options.bias, .bias_init = [](const Tensor& b, RandomKey) { init::constant(b, 0); }}) {
  ATH_CHECK(options.heads > 0 && channels % options.heads == 0,
            "MultiheadAttention: heads must divide the channels, but got {} heads and {} channels",
            options.heads, channels);
  ATH_CHECK(options.dropout >= 0 && options.dropout <= 1,
            "MultiheadAttention: dropout must be in [0, 1], but got {}", options.dropout);
  in_weight_ = register_parameter("in_proj_weight", Tensor::zeros({3 * channels, channels}));
  if (options.bias)
    in_bias_ = register_parameter("in_proj_bias", Tensor::zeros({3 * channels}), {.decay = false});
  register_module("out_proj", out_);
  needs_values();
}

Tensor MultiheadAttention::forward(const Tensor& x, const Tensor& mask) {
  about_to_run();
  const LayerScope named(layer_name());
  return attend(x, mask);
}

Tensor MultiheadAttention::attend(const Tensor& x, const Tensor& mask) {
  ATH_CHECK(x.defined() && x.rank() == 3 && x.shape()[2] == channels_,
            "MultiheadAttention: input must be [B, T, {}], but got {}", channels_,
            x.defined() ? x.shape().str() : "an undefined tensor");
  const std::int64_t batch = x.shape()[0], length = x.shape()[1], width = channels_ / options_.heads;
  // [B, T, 3E] as queries, keys and values, each [B, heads, T, E / heads].
  const Tensor all = reshape(linear(x, in_weight_, in_bias_), {batch, length, 3, options_.heads, width});
  const Tensor by_head = permute(all, {2, 0, 3, 1, 4});
  const Tensor heads =
      scaled_dot_product_attention(select(by_head, 0, 0), select(by_head, 0, 1), select(by_head, 0, 2),
                                   {.mask = mask,
                                    .causal = options_.causal,
                                    .dropout = training() ? static_cast<float>(options_.dropout) : 0});
  return out_(reshape(permute(heads, {0, 2, 1, 3}), {batch, length, channels_}));
}

void MultiheadAttention::reset(const InitKeys& keys) {
  init::xavier_uniform(in_weight_, keys("in_proj_weight"));
  if (in_bias_.defined()) init::constant(in_bias_, 0);
}

}  // namespace athanor::nn
