#pragma once

#include <cstdint>
#include <functional>

#include "kernels/conv.h"
#include "tensor/tensor.h"

namespace athanor::bench {

/// A convolution of u8 x and i8 w with a ReLU: y = max(round(multiplier (bias + sum of x w) + zero), zero),
/// where x is padded with `zero`.
struct Int8Conv {
  Conv2dParams params;
  Tensor x, w, multiplier, bias;
  std::int32_t zero;
  Tensor y;
};

/// Whether this build has oneDNN.
bool has_onednn_int8();
/// oneDNN's code for it, on all threads; its operands live in the function.
std::function<void()> onednn_int8(const Int8Conv& conv);

}  // namespace athanor::bench
