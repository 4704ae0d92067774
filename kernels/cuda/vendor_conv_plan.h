#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/cuda/cublas_matmul.h"
#include "kernels/cuda/cudnn_conv.h"
#include "kernels/cuda/found.h"

namespace athanor::cuda {

/// A way to run a convolution: a graph of cuDNN's or, where it is a plain product, an algorithm of
/// cuBLASLt's.
struct ConvPlan {
  std::optional<cudnn::Plan> graph;
  std::optional<cublas::Algorithm> product = {};
};

/// A convolution with a 1 x 1 filter at every pixel, as the product that it is; nothing for others, and where
/// cuDNN is to fuse a relu. y [pixels, k] = x w^T + bias, dx (+)= dy w, dw (+)= dy^T x: dw in the signature's
/// `out`.
std::optional<cublas::MatmulSignature> product_of(const cudnn::ConvSignature& signature);

/// Up to `most` graphs, and behind them a quarter as many products (1 or more): a guess is a graph, where
/// there is one.
Found<ConvPlan> find_conv_plans(const cublas::Handle& handle, const cudnn::ConvSignature& signature,
                                const cudnn::DeviceProperties& device, std::size_t most);

/// As text, and back: nothing where the library does not take it for that signature.
std::string write(const ConvPlan& plan);
std::optional<ConvPlan> read(const cublas::Handle& handle, const cudnn::ConvSignature& signature,
                             const cudnn::DeviceProperties& device, std::string_view text);

}  // namespace athanor::cuda
