#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/conv.h"
#include "kernels/cuda/cudnn_plans.h"

// Convolutions as cuDNN graphs.

namespace athanor::cudnn {

/// All that decides which plan fits. Tensors are dense, images NHWC and filters KRSC.
struct ConvSignature {
  Graph::Pass pass = Graph::Pass::forward;
  DType dtype = DType::f32;  ///< of every tensor; sums are f32
  bool bias = false;         ///< forward: y = x * w + bias
  bool relu = false;         ///< forward: y = max(x * w + bias, 0); cuDNN has it together with a bias alone
  bool sums = false;         ///< forward: also the sums of y's channels and of their squares, f32
  /// Behind a norm with ReLU: x is scaled, shifted and cut at 0 as it is loaded. Backward to the data, the
  /// result is the gradient before that ReLU, with the norm's sums.
  bool norm = false;
  enum class Shortcut : unsigned char { none, tensor, norm };
  Shortcut shortcut = Shortcut::none;  ///< of that norm; forward, its result is then kept as well
  bool others = false;                 ///< backward to the data: to dy of the norm, those of others are added
  /// Whether the result is added to: dx by the plan itself, dw by a kernel of ours.
  bool accumulate = false;
  // What kernels of ours do to the result, which does not change the plan, but what is faster.
  Activation after = Activation::none;      ///< forward
  DType out = DType::f32;                   ///< backward weights: what dw is kept in
  std::int64_t n = 1, h = 1, w = 1, c = 1;  ///< x
  std::int64_t k = 1, r = 1, s = 1;         ///< w [k, r, s, c / groups]
  std::int64_t p = 1, q = 1;                ///< y [n, p, q, k]
  Window window;
  std::int64_t groups = 1;
  /// That of addresses of x, w, bias and y, in bytes: a power of two, at most 16.
  std::array<std::int64_t, 4> alignment{16, 16, 16, 16};
  PlanRules rules;

  bool operator==(const ConvSignature&) const = default;
  std::size_t hash() const;
  /// "conv2d forward f16 x[256,28,28,128] w[128,3,3,128] ...": the same for equal signatures alone.
  std::string str() const;
};

/// The signature of a pass over tensors of these shapes. Of the activation it takes in what cuDNN can fuse.
ConvSignature conv_signature(Graph::Pass pass, DType dtype, const Shape& x, const Shape& w, const Shape& y,
                             bool bias, const Conv2dParams& params);

/// Its pointers are x, w, bias where there is one, y (or the gradients in their places); behind a norm scale
/// and shift, the shortcut, its scale and shift if it is a norm, and what the norm's result is kept in if it
/// has a shortcut; or, backward to the data, the gradient of others, then x, mean, 1 / standard deviation,
/// gamma and beta of each norm, the shortcut if it is a tensor, and of each norm dbeta, dgamma, and three
/// more results of C f32; and with sums those of the values and of the squares. All but the first four are on
/// 16 bytes.
Graph conv_graph(const ConvSignature& signature);

/// Up to `most` plans, cuDNN's favourite first. Empty where there is none: bf16 before sm_80, patterns and
/// alignments it does not know, or none that the signature's rules permit.
cuda::Found<Plan> find_conv_plans(const ConvSignature& signature, const Target& target, std::size_t most);

}  // namespace athanor::cudnn
