#pragma once

#include <cstdint>

#include "autograd/conv_norm.h"
#include "kernels/conv.h"
#include "nn/module.h"

namespace athanor::nn {

struct Conv2dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;   ///< zeros on each side
  bool same_padding = false;  ///< as many zeros as keep H and W; requires stride 1
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  Activation activation = Activation::none;  ///< fused
  bool frozen_weight = false;                ///< the weight is a buffer: saved but not trained
  ConvImpl impl = ConvImpl::automatic;
  Init weight_init{};  ///< empty: uniform +-1 / sqrt(fan in), as in PyTorch
  Init bias_init{};    ///< the same
};

/// activation(conv(x, W) + b): x [N, H, W, in] -> [N, P, Q, out]. Parameters weight [out, kernel, kernel,
/// in / groups], bias [out].
class Conv2d final : public Module {
 public:
  Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv2dOptions& options = {});

  Tensor forward(const Tensor& x) override;
  /// A call of this layer, for an op that includes its convolution: conv_norm(), conv_pool_relu().
  ConvArguments arguments() const;

  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  void reset(const InitKeys& keys) override;

  Conv2dOptions options_;
  Conv2dParams params_;
  Tensor weight_, bias_;
};

/// relu(max_pool2d(conv(x))) with 2 x 2 windows, as one op: see conv_pool_relu() in autograd/conv_norm.h.
inline Tensor conv_pool_relu(const Conv2d& conv, const Tensor& x) {
  return conv_pool_relu(x, conv.arguments());
}

}  // namespace athanor::nn
