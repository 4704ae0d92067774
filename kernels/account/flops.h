#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/shape.h"

// FLOPs as the account, the profiler and --summary count them: two per multiply-add of products of matrices
// and of convolutions. Nothing else is counted.

namespace athanor {

/// For `results` sums of `terms` products each.
constexpr std::int64_t product_flops(std::int64_t results, std::int64_t terms) {
  return 2 * results * terms;
}

/// Of a convolution, or of `linear`, with `results` elements of its result; w [K, ...] has a sum's terms in
/// each row. The pass backward to x takes as many, and so does the one to w.
inline std::int64_t layer_flops(const Shape& w, std::int64_t results) {
  return product_flops(results, w.numel() / std::max<std::int64_t>(w[0], 1));
}

/// Of conv_transpose2d: every element of x meets its channel's part of w [..., C].
inline std::int64_t transposed_flops(const Shape& w, std::int64_t inputs) {
  return product_flops(inputs, w.numel() / std::max<std::int64_t>(w[w.rank() - 1], 1));
}

}  // namespace athanor
