#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace athanor {

/// How each image of a batch is mixed with its partner.
struct Mixing {
  double share = 1;   ///< of the image itself, in [0, 1]
  bool cuts = false;  ///< a rectangle comes from the partner; else every pixel is a weighted sum
  std::int64_t top = 0, left = 0, height = 0, width = 0;  ///< of the rectangle, inside the image
};

namespace kernels {

/// Mixes, in place, images n and N - 1 - n with the same share each, and sets partner_labels[n] = labels[N -
/// 1 - n]. The middle one of an odd number is unchanged. images [N, H, W, C] floating, labels and
/// partner_labels [N] i64, all dense. Sums in f32 (f64 for f64). Moves 2 elements per changed element.
ATH_KERNEL(void, mix, const Mixing& how, Out images, Out labels, const Tensor& partner_labels);

/// Weighted sums for both images of a pair.
template <class A, class T> ATH_HD void mix_pair(T& a, T& b, A own, A other) {
  const A first = A(a), second = A(b);
  a = T(own * first + other * second);
  b = T(own * second + other * first);
}

}  // namespace kernels
}  // namespace athanor
