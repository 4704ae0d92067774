#pragma once

#include <cstdint>
#include <memory>

#include "autograd/conv.h"
#include "kernels/conv.h"
#include "nn/module.h"

namespace athanor::nn {

class BatchNorm;
class Conv2d;

/// relu(max_pool2d(conv(x))) with 2 x 2 windows. With packed weights (Module::pack_weights()), in
/// InferenceMode, it is one pass if the CPU has code for it: for up to 8 input channels.
Tensor conv_pool_relu(Conv2d& conv, const Tensor& x);

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
  ~Conv2d() override;

  Tensor forward(const Tensor& x) override;
  /// A call whose result goes to a batch norm in training: see conv2d_with_sums().
  ConvAndSums with_sums(const Tensor& x);

  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  friend Tensor conv_norm_act(Conv2d& conv, BatchNorm& norm, const Tensor& x, const Tensor& residual);
  friend Tensor conv_pool_relu(Conv2d& conv, const Tensor& x);

  struct Packed;

  void reset(const InitKeys& keys) override;
  void on_pack() override;
  /// The weights in the dtype of x.
  Tensor weight_for(const Tensor& x) const;
  /// Whether a call on x may use packed weights.
  bool may_use_packed(const Tensor& x) const;
  /// The packed weights of this convolution, or null if the call must not use them.
  const kernels::PackedWeights* packed(const Tensor& x) const;
  /// The weights with `norm` folded in, or null if the call must run both. Also null if `norm` is not the
  /// norm of the first call.
  const kernels::PackedWeights* packed_with(const BatchNorm& norm, const Tensor& x) const;

  Conv2dOptions options_;
  Conv2dParams params_;
  Tensor weight_, bias_;
  std::unique_ptr<Packed> alone_, folded_;  // null unless weights are packed
};

}  // namespace athanor::nn
