#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/primitive.h"
#include "kernels/int8.h"

namespace athanor::cpu {

/// The implementations of conv2d_int8, in the order in which they are asked. The last one fits everything. A
/// key is of Op::conv_int8, with dtypes u8 and u8, or u8 and f32 where results are not rounded, and says
/// whether there is a residual. All give the same bytes.
std::span<const ListEntry> int8_conv_list();

/// What such an operation has besides its tensors, which are those of conv_forward: (x, w, bias, y), where w
/// is in Primitive::int8_layout() and the bias is i32.
struct Int8Operands {
  std::int32_t x_zero = 0;  ///< around x
  const float* multiplier = nullptr;
  kernels::Rounding rounding = {};  ///< of u8 results
  float residual_scale = 0;
  std::int32_t residual_zero = 0;
};

}  // namespace athanor::cpu
