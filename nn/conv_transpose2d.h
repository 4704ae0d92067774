#pragma once

#include <cstdint>

#include "autograd/conv_transpose.h"
#include "nn/module.h"

namespace athanor::nn {

struct ConvTranspose2dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;         ///< rows and columns removed from each side of the result
  std::int64_t output_padding = 0;  ///< extra rows and columns at its end
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  ConvImpl impl = ConvImpl::automatic;
  Init weight_init{};  ///< empty: uniform +-1 / sqrt(kernel^2 out / groups), as in PyTorch
  Init bias_init{};    ///< the same
};

/// Transposed convolution: x [N, H, W, in] -> [N, P, Q, out], see conv_transpose2d() in
/// autograd/conv_transpose.h. Parameters weight [in, kernel, kernel, out / groups], bias [out].
class ConvTranspose2d final : public Module {
 public:
  ConvTranspose2d(std::int64_t in, std::int64_t out, std::int64_t kernel,
                  const ConvTranspose2dOptions& options = {});

  Tensor forward(const Tensor& x) override;

  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  void reset(const InitKeys& keys) override;

  Init weight_init_, bias_init_;
  ConvTranspose2dParams params_;
  Tensor weight_, bias_;
};

}  // namespace athanor::nn
