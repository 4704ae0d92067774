#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace athanor {

struct Pool2dParams {
  std::int64_t window[2] = {2, 2};  ///< along H, W
  std::int64_t stride[2] = {2, 2};
  std::int64_t padding[2] = {0, 0};  ///< max: never wins; average: see count_padding
  bool ceil_mode = false;     ///< round the output size up; windows that start in the padding are dropped
  bool count_padding = true;  ///< average divides by the window size, padding included
};

/// Largest value of each window. x [N, H, W, C] -> [N, P, Q, C]. The gradient goes to the first of equal
/// maxima.
Tensor max_pool2d(const Tensor& x, const Pool2dParams& params = {});
Tensor avg_pool2d(const Tensor& x, const Pool2dParams& params = {});
/// Average over out_h x out_w nearly equal windows; 1 x 1 is global average pooling. [N, H, W, C] -> [N,
/// out_h, out_w, C].
Tensor adaptive_avg_pool2d(const Tensor& x, std::int64_t out_h, std::int64_t out_w);

}  // namespace athanor
