#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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
  std::int64_t channels = 0;  ///< of a graph, to which x and w are padded (conv_padded.h); 0: they are not
};

/// A convolution with a 1 x 1 filter at every pixel, as the product that it is; nothing for others, and where
/// cuDNN is to fuse a relu. y [pixels, k] = x w^T + bias, dx (+)= dy w, dw (+)= dy^T x: dw in the signature's
/// `out`.
std::optional<cublas::MatmulSignature> product_of(const cudnn::ConvSignature& signature);

/// How many channels x and w are padded to, to see whether that is faster: for images of three channels in a
/// half type. For other convolutions, and where cuDNN does more than convolve, none.
std::span<const std::int64_t> padded_channels(const cudnn::ConvSignature& signature);
/// The signature of the graph that runs then.
cudnn::ConvSignature padded(const cudnn::ConvSignature& signature, std::int64_t channels);

/// Up to `most` graphs, and behind them a quarter as many products (1 or more), or half as many graphs of
/// each number of padded channels: a guess is a graph of the convolution as it is, where there is one.
Found<ConvPlan> find_conv_plans(const cublas::Handle& handle, const cudnn::ConvSignature& signature,
                                const cudnn::Target& target, std::size_t most);

/// As text, and back: nothing where the library does not take it for that signature.
std::string write(const ConvPlan& plan);
std::optional<ConvPlan> read(const cublas::Handle& handle, const cudnn::ConvSignature& signature,
                             const cudnn::DeviceProperties& device, std::string_view text);

}  // namespace athanor::cuda
