#pragma once

#include <cstdint>

#include "kernels/activation.h"
#include "nn/module.h"

namespace athanor::nn {

/// The shape of the image that flatten() turned into a layer's input. We flatten as H, W, C and PyTorch as C,
/// H, W: nn/torch/torch_layout.h uses this to permute the columns.
struct FlattenedImage {
  std::int64_t height = 0, width = 0, channels = 0;
};

struct LinearOptions {
  bool bias = true;
  Activation activation = Activation::none;  ///< fused
  FlattenedImage image{};                    ///< all 0: the input is not a flattened image
  Init weight_init{};                        ///< empty: uniform +-1 / sqrt(in), as in PyTorch
  Init bias_init{};                          ///< the same
};

/// y = activation(x W^T + b): x [..., in] -> [..., out]. Parameters weight [out, in], bias [out].
class Linear final : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, const LinearOptions& options = {});

  Tensor forward(const Tensor& x) override;

  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }
  const LinearOptions& options() const { return options_; }

 private:
  void reset(const InitKeys& keys) override;

  LinearOptions options_;
  Tensor weight_, bias_;
};

}  // namespace athanor::nn
