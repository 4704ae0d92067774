#pragma once

#include <cstdint>

#include "data/loader.h"
#include "kernels/augment.h"
#include "kernels/mix.h"
#include "tensor/philox.h"

namespace athanor {

// Mixup (Zhang et al. 2018, arXiv:1710.09412) and CutMix (Yun et al. 2019, arXiv:1905.04899): mixes images of
// a batch in pairs, and their labels, by one share for the whole batch, as timm does.

/// The random key for mixing in a pass: the same for all ranks, and after a resume.
RandomKey mix_key(std::uint64_t seed, std::int64_t step, std::int64_t pass);

/// A draw from Beta(alpha, alpha), alpha > 0: depends only on its arguments, with the same bits on every
/// machine. Source: Johnk 1964 for alpha up to 1; Cheng 1978, algorithm BB, above.
double draw_beta(double alpha, const RandomKey& key);

/// Draws the mixing of a batch of height x width images. A rectangle has sides sqrt(1 - share) of the
/// image's, around a random pixel, clipped to the image; the share then becomes that of the remaining pixels.
Mixing draw_mixing(const Augment& augment, std::int64_t height, std::int64_t width, const RandomKey& key);

/// Mixes a prepared batch in place, if `augment` says so: its images, and partner_labels and own_share for
/// the loss. Of N images, the partner of n is N - 1 - n: for a field "labels", which stays as it is. Each
/// rank mixes its own part. Throws ArgumentError if samples have no labels, or several views.
void mix(Batch& batch, const Augment& augment, const RandomKey& key);

}  // namespace athanor
