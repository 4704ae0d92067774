#pragma once

#include <cstdint>

#include "kernels/conv.h"
#include "nn/module.h"

namespace athanor::nn {

struct Conv2dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;   ///< zeros on each side
  bool same_padding = false;  ///< as many zeros as keep H and W; stride 1 alone
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  Activation activation = Activation::none;  ///< fused
  bool frozen_weight = false;                ///< the weight is a buffer: saved, not trained
  ConvImpl impl = ConvImpl::automatic;
  Init weight_init{};  ///< uniform +-1 / sqrt(fan in) where empty, as PyTorch's
  Init bias_init{};    ///< the same
};

/// activation(conv(x, W) + b): x [N, H, W, in] -> [N, P, Q, out]. Parameters weight [out, kernel, kernel,
/// in / groups], bias [out].
class Conv2d final : public Module {
 public:
  Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv2dOptions& options = {});

  Tensor forward(const Tensor& x) override;

  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  void reset(const InitKeys& keys) override;

  Conv2dOptions options_;
  Conv2dParams params_;
  Tensor weight_, bias_;
};

}  // namespace athanor::nn
