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

/// Random colours, for images of 3 channels (RGB): in this order brightness times a factor, the distance to
/// middle grey (contrast) times one, the distance to the pixel's own grey (saturation) times one, and a hue
/// turned around. Factors are drawn from [max(0, 1 - amount), 1 + amount], the hue from [-hue, hue] turns.
/// Luma and the plane of hues are those of YIQ, so that all of it is one matrix, rounded and clamped once.
/// Amounts in [0, 2], hue in [0, 0.5].
struct ColourJitter {
  float brightness = 0, contrast = 0, saturation = 0, hue = 0;

  bool any() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
  bool operator==(const ColourJitter&) const = default;
};

/// Random changes to a training image. Colours change first; then the others, in this order.
struct Augment {
  /// Shifts the image by up to `pad` pixels each way: the crop of a padded image. Reflect needs pad < side.
  std::int64_t pad = 0;
  Padding padding = Padding::zero;
  /// Mirrors it left to right, every other time.
  bool flip = false;
  /// Blanks a square of this side around a random pixel, as far as it lies inside. Source: DeVries and Taylor
  /// 2017, arXiv:1708.04552.
  std::int64_t cutout = 0;
  ColourJitter colour = {};

  bool operator==(const Augment&) const = default;
};

namespace kernels {

/// What becomes of a pixel's colours, in steps of 2^-14: bytes in, bytes out, the same on every device.
struct ColourMatrix {
  static constexpr int kBits = 14;
  std::int32_t row[3][4];  // the last column is added; it includes the half that rounds

  ATH_HD std::uint8_t operator()(const std::uint8_t* pixel, std::int64_t channel) const {
    const std::int32_t* m = row[channel];
    const std::int32_t sum = (m[0] * pixel[0] + m[1] * pixel[1] + m[2] * pixel[2] + m[3]) >> kBits;
    return static_cast<std::uint8_t>(sum < 0 ? 0 : sum > 255 ? 255 : sum);
  }
};

/// The matrix of factors (see ColourJitter) and a hue in [-0.5, 0.5] turns.
ATH_HD inline ColourMatrix colour_matrix(float brightness, float contrast, float saturation, float hue) {
  // cos and sin of the angle from those of its half, which lies in [-pi/2, pi/2]: Taylor, within 1e-6.
  const float half = hue * 3.14159265f, z = half * half;
  float sine = std::fma(z, -1.0f / 39916800, 1.0f / 362880);
  sine = std::fma(z, sine, -1.0f / 5040);
  sine = std::fma(z, sine, 1.0f / 120);
  sine = std::fma(z, sine, -1.0f / 6);
  sine = std::fma(half * z, sine, half);
  float cosine = std::fma(z, 1.0f / 479001600, -1.0f / 3628800);
  cosine = std::fma(z, cosine, 1.0f / 40320);
  cosine = std::fma(z, cosine, -1.0f / 720);
  cosine = std::fma(z, cosine, 1.0f / 24);
  cosine = std::fma(z, cosine, -0.5f);
  cosine = std::fma(z, cosine, 1.0f);
  const float turn_sine = 2.0f * sine * cosine, turn_cosine = 1.0f - 2.0f * sine * sine;
  // A quarter turn of the plane of hues, T^-1 [0 0 0; 0 0 -1; 0 1 0] T with YIQ's T.
  const float luma[3] = {0.299f, 0.587f, 0.114f};
  const float quarter[3][3] = {{0.1677397f, 0.3293095f, -0.4970492f},
                               {-0.3281131f, 0.0354670f, 0.2926461f},
                               {1.2495459f, -1.0463392f, -0.2032067f}};
  const float gain = brightness * contrast, one = static_cast<float>(1 << ColourMatrix::kBits);
  ColourMatrix matrix;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      const float plane = (i == j ? 1.0f : 0.0f) - luma[j];
      const float turned = turn_cosine * plane + turn_sine * quarter[i][j];
      const float value = gain * (luma[j] + saturation * turned);
      matrix.row[i][j] = static_cast<std::int32_t>(std::floor(value * one + 0.5f));
    }
    const float added = (1.0f - contrast) * 127.5f + 0.5f;
    matrix.row[i][3] = static_cast<std::int32_t>(std::floor(added * one + 0.5f));
  }
  return matrix;
}

/// What happens to one sample: out[y][x] is in[y + dy][x + dx], mirrored or not, outside the blank square.
struct AugmentPlan {
  std::int64_t dy = 0, dx = 0;
  bool flip = false;
  std::int64_t blank_y = 0, blank_x = 0, blank_height = 0, blank_width = 0;
  bool recolours = false;
  ColourMatrix colour{};
};

/// What a draw is for: the minor number of its stream. Attempts at a resized crop (data/image/transform.h)
/// take the numbers from there on.
enum class AugmentOp : std::uint8_t { crop = 0, flip = 1, cutout = 2, colour = 3, resized_crop = 16 };

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
  const ColourJitter& jitter = augment.colour;
  plan.recolours = jitter.brightness > 0 || jitter.contrast > 0 || jitter.saturation > 0 || jitter.hue > 0;
  if (plan.recolours) {
    const PhiloxBlock random = draw(AugmentOp::colour);
    const auto factor = [](std::uint32_t word, float amount) {
      const float low = amount < 1 ? 1 - amount : 0.0f;
      return low + (1 + amount - low) * random_uniform(word);
    };
    plan.colour = colour_matrix(
        factor(random.word[0], jitter.brightness), factor(random.word[1], jitter.contrast),
        factor(random.word[2], jitter.saturation), jitter.hue * (2 * random_uniform(random.word[3]) - 1));
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
/// y [N, H, W, C] floating, dense. A padded pixel has the bytes 0, whatever the colours; a blanked one is 0
/// in y. C is 3 where colours change.
template <class Context>
void augment(Context& context, const Augment& augment, std::uint64_t seed, std::int64_t epoch,
             const Tensor& images, const Tensor& rows, const Tensor& samples, const Tensor& table,
             const Tensor& y);

}  // namespace kernels
}  // namespace athanor
