#pragma once

#include <cstdint>

#include "data/loader.h"
#include "kernels/augment.h"
#include "kernels/mix.h"
#include "tensor/philox.h"

namespace athanor {

// Mixup (Zhang et al. 2018, arXiv:1710.09412) and CutMix (Yun et al. 2019, arXiv:1905.04899): images of a
// batch are mixed in pairs, and so are their labels, by one share for the whole batch. As timm does it.

/// What a pass's mixing is drawn from: the same for all ranks, and in a run that goes on.
RandomKey mix_key(std::uint64_t seed, std::int64_t step, std::int64_t pass);

/// A draw of Beta(alpha, alpha), alpha > 0: a function of its arguments alone, with the same bits on every
/// machine. Source: Johnk 1964 for alpha up to 1; Cheng 1978, algorithm BB, above.
double draw_beta(double alpha, const RandomKey& key);

/// How a batch of images of height x width is mixed. A rectangle has the sides sqrt(1 - share) of the image's
/// around a random pixel, as far as it lies inside; the share is then that of the pixels that stay.
Mixing draw_mixing(const Augment& augment, std::int64_t height, std::int64_t width, const RandomKey& key);

/// Mixes a batch that is prepared, in place, where `augment` says so: its images, and into partner_labels and
/// own_share what a loss needs. Of several ranks each mixes its own part. Throws ArgumentError where samples
/// have no labels, or several views.
void mix(Batch& batch, const Augment& augment, const RandomKey& key);

}  // namespace athanor
