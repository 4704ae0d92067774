#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "nn/quantized/graph.h"

// Traced ops of autograd/, repeated on other tensors.

namespace athanor::nn::quantized {

/// Computes a call on its operands (undefined if omitted); `y`: the shape of the result.
using Replay = Tensor (*)(const Call& call, std::span<const Tensor> x, const Shape& y);

/// The function of an op of autograd/, or null if there is none: then a network with the op is refused.
Replay replay_of(std::string_view op);

/// The result of op.calls on `inputs`, in the order of op.inputs, for a batch of `images`.
Tensor replay(const Op& op, std::span<const Tensor> inputs, std::int64_t images);

/// A call's numbers. Throws ArgumentError if it has no such attribute.
std::span<const double> numbers_of(const Call& call, std::string_view attribute);
inline double number_of(const Call& call, std::string_view attribute) {
  return numbers_of(call, attribute).front();
}
inline std::int64_t integer_of(const Call& call, std::string_view attribute) {
  return static_cast<std::int64_t>(number_of(call, attribute));
}

/// A pool's parameters from its windows, for x [N, H, W, C] and y [N, P, Q, C].
Pool2dParams pool_of(const Call& call, const Shape& x, const Shape& y);
/// The parameters of a convolution but its activation.
Conv2dParams conv_of(const Call& call);

}  // namespace athanor::nn::quantized
