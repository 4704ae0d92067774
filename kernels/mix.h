#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace athanor {

/// How each image of a batch is mixed with another one.
struct Mixing {
  double share = 1;   ///< of an image that is its own, in [0, 1]
  bool cuts = false;  ///< a rectangle comes from the other image; else every pixel is a sum by shares
  std::int64_t top = 0, left = 0, height = 0, width = 0;  ///< of the rectangle, inside the image
};

namespace kernels {

/// Mixes, in place, image n of N with image N - 1 - n, which gets the same share of it; and partner_labels[n]
/// = labels[N - 1 - n]. The middle one of an odd number stays as it is.
/// images [N, H, W, C] floating, labels and partner_labels [N] i64, all dense. Sums in f32 (f64 of f64).
/// Moves 2 elements per element that changes.
template <class Context>
void mix(Context& context, const Mixing& how, const Tensor& images, const Tensor& labels,
         const Tensor& partner_labels);

/// Both images' elements after a sum.
template <class A, class T> ATH_HD void mix_pair(T& a, T& b, A own, A other) {
  const A first = A(a), second = A(b);
  a = T(own * first + other * second);
  b = T(own * second + other * first);
}

}  // namespace kernels
}  // namespace athanor
