#pragma once

#include <cstdint>

#include "kernels/copy.h"
#include "kernels/cuda/conv_list.h"

// A convolution of few channels as one of more, the others zero. Pixels of 3 elements of 16 bits lie on no
// boundary but their own; of 4 or 8 they are one access each, and cuDNN has more kernels for them. What it
// multiplies by the zeros, and the pass over x, may cost less than that gains: it is measured.

namespace athanor::cuda {

/// y = x and, behind its channels, zeros. x [..., C] of 16 bits, y [..., 4 or 8] of the same dtype, C less
/// than that; both dense. Moves the bytes of both.
void pad_channels(CudaContext& context, const Tensor& x, Out y);

/// Queues `call`, forward or to the weights and without sums, by convolve(the same of so many channels). Its
/// dw, in the dtype of x, becomes call.w without the channels that are not there.
template <class Convolve>
void convolve_padded(CudaContext& context, std::int64_t channels, const ConvCall& call,
                     const Convolve& convolve) {
  const auto widened = [&](const Tensor& t) {
    Shape shape = t.shape();
    shape[3] = channels;
    return Tensor::empty(shape, call.x.options());
  };
  const Tensor x = widened(call.x), w = widened(call.w);
  pad_channels(context, call.x, x);
  if (call.pass == ConvPass::forward) pad_channels(context, call.w, w);
  convolve(
      ConvCall{.pass = call.pass, .params = call.params, .x = x, .w = w, .bias = call.bias, .y = call.y});
  if (call.pass == ConvPass::forward) return;
  const Tensor dw = w.view_as_strided(call.w.shape(), w.strides(), 0);
  call.accumulates() ? kernels::add_into(context, dw, call.w) : kernels::copy(context, dw, call.w);
}

}  // namespace athanor::cuda
