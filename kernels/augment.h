#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "tensor/philox.h"

// From bytes to what a network eats, in one pass. Every random choice is a function of (seed, epoch, sample,
// op), so that it does not depend on the batch, the number of workers or the device.
// Moves 1 byte in and one element out per value.

namespace athanor {

/// What lies around an image when a crop reaches over its edge.
enum class Padding : std::uint8_t { zero, reflect };

/// Random changes to a training image, in this order.
struct Augment {
  /// Shifts the image by up to `pad` pixels each way: the crop of a padded image. Reflect needs pad < side.
  std::int64_t pad = 0;
  Padding padding = Padding::zero;
  /// Mirrors it left to right, every other time.
  bool flip = false;
  /// Blanks a square of this side around a random pixel, as far as it lies inside. Source: DeVries and Taylor
  /// 2017, arXiv:1708.04552.
  std::int64_t cutout = 0;

  bool operator==(const Augment&) const = default;
};

namespace kernels {

/// What happens to one sample: out[y][x] is in[y + dy][x + dx], mirrored or not, outside the blank square.
struct AugmentPlan {
  std::int64_t dy = 0, dx = 0;
  bool flip = false;
  std::int64_t blank_y = 0, blank_x = 0, blank_height = 0, blank_width = 0;
};

enum class AugmentOp : std::uint8_t { crop = 0, flip = 1, cutout = 2 };

/// Draws the plan of a sample: the same on every device.
ATH_HD inline AugmentPlan plan_augment(const Augment& augment, std::int64_t height, std::int64_t width,
                                       std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  const auto draw = [&](AugmentOp op) {
    const auto stream = random_stream(RandomPurpose::augment, static_cast<std::uint64_t>(epoch),
                                      static_cast<std::uint64_t>(op));
    return philox({seed, stream}, static_cast<std::uint64_t>(sample));
  };
  // 32 random bits times a range below 2^16: the bias is below 2^-16.
  const auto below = [](std::uint32_t word, std::int64_t range) {
    return static_cast<std::int64_t>((std::uint64_t{word} * static_cast<std::uint64_t>(range)) >> 32);
  };
  AugmentPlan plan;
  if (augment.pad > 0) {
    const PhiloxBlock random = draw(AugmentOp::crop);
    plan.dy = below(random.word[0], 2 * augment.pad + 1) - augment.pad;
    plan.dx = below(random.word[1], 2 * augment.pad + 1) - augment.pad;
  }
  if (augment.flip) plan.flip = (draw(AugmentOp::flip).word[0] & 1u) != 0;
  if (augment.cutout > 0) {
    const PhiloxBlock random = draw(AugmentOp::cutout);
    const auto clip = [&](std::int64_t centre, std::int64_t side, std::int64_t& start, std::int64_t& length) {
      const std::int64_t low = centre - augment.cutout / 2, high = low + augment.cutout;
      start = low > 0 ? low : 0;
      length = (high < side ? high : side) - start;
    };
    clip(below(random.word[0], height), height, plan.blank_y, plan.blank_height);
    clip(below(random.word[1], width), width, plan.blank_x, plan.blank_width);
  }
  return plan;
}

/// The pixel a padded image has at position i, -side < i < 2 side - 1, or -1 for one of zero padding.
ATH_HD inline std::int64_t padded_index(std::int64_t i, std::int64_t side, Padding padding) {
  if (i >= 0 && i < side) return i;
  if (padding == Padding::zero) return -1;
  return i < 0 ? -i : 2 * (side - 1) - i;
}

/// y[n] = table[c][images[rows[n]] changed by augment], for each sample n.
/// images [M, H, W, C] u8, dense. rows [N] i64 in [0, M) gathers; undefined: row n. samples [N] i64: each
/// sample's number, which draws its changes. table [C, 256], of y's dtype: what a byte of channel c becomes.
/// y [N, H, W, C] floating, dense. A padded pixel has the bytes 0; a blanked one is 0 in y.
template <class Context>
void augment(Context& context, const Augment& augment, std::uint64_t seed, std::int64_t epoch,
             const Tensor& images, const Tensor& rows, const Tensor& samples, const Tensor& table,
             const Tensor& y);

}  // namespace kernels
}  // namespace athanor
