#pragma once

#include "kernels/augment.h"

// RandAugment, and other augmentations that go over an image's bytes on their own: torchvision's fourteen
// operations with Pillow's arithmetic, so results match byte for byte on a CPU with AVX2, as torchvision's
// factors depend on the CPU. Geometric operations take the nearest pixel, and 0 outside the image. All
// devices share this code; histograms and blurs add integers, so their order does not matter. Source: Cubuk
// et al. 2020, arXiv:1909.13719; torchvision's RandAugment, which gave the names.

namespace athanor::kernels {

/// The operations of RandAugment, in torchvision's order.
enum class RandOp : std::uint8_t {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  auto_contrast,
  equalize,
  blur  ///< not of RandAugment
};
/// How many operations RandAugment has, and the magnitude of the strongest.
constexpr int kRandOps = 14, kMaxMagnitude = 30;

/// Pixels that a blur reaches to each side, and the fractional bits of its weights, whose sum is 1.
constexpr int kMaxBlur = 11, kBlurBits = 16;

/// How far the operations go at magnitude 30.
struct RandSpace {
  double shear = 0.3;                 ///< tangent of the angle
  double turn = 0.52359877559829887;  ///< radians
  int turn_terms = 14;                ///< of Taylor's series: to 1e-15
  float blend = 0.9f;                 ///< distance of the factors from 1
  double posterize = 7.5;             ///< magnitudes for each bit
  int shift = 0;                      ///< pixels; 0: 150 / 331 of the side
};
/// TrivialAugmentWide's: 135 degrees.
ATH_HD constexpr RandSpace wide_space() {
  return {0.99, 2.3561944901923449, 30, 0.99f, 5, 32};
}

/// An operation on images of one size, at one strength. Trivial, for shared memory.
struct RandChange {
  RandOp op;
  float factor;                           ///< blend factor: 1 leaves an image unchanged
  std::int32_t kept_bits, inverted_from;  ///< for posterize, a mask; for solarize
  std::int64_t row[3], column[3];         ///< for geometric ones: times (x, y, 1), in steps of 2^-16 pixels
  int blur_radius;                        ///< pixels to each side, fewer than the image has
  std::int32_t blur[kMaxBlur + 1];        ///< weight of the pixel, and of those at each distance

  ATH_HD bool moves() const { return op >= RandOp::shear_x && op <= RandOp::rotate; }
  ATH_HD bool counts() const {
    return op == RandOp::contrast || op == RandOp::auto_contrast || op == RandOp::equalize;
  }
};

/// Sets a row of the matrix that maps a pixel to its source, relative to pixel centres.
ATH_HD inline void set_place(std::int64_t* to, double of_x, double of_y, double offset) {
  const auto fixed = [](double value) { return static_cast<std::int64_t>(std::floor(value * 65536 + 0.5)); };
  to[0] = fixed(of_x);
  to[1] = fixed(of_y);
  to[2] = fixed(offset + of_x * 0.5 + of_y * 0.5);
}

/// `most` magnitude / 30 as torch.linspace(0, most, 31) computes it with AVX2: in f32, in blocks of eight,
/// and the rest from the end. A factor that is one ulp off changes bytes whose products are whole numbers.
ATH_HD inline float blend_share(float most, int magnitude) {
  const float step = most / kMaxMagnitude;
  constexpr int kBlock = 8, kInBlocks = 24;
  const int lane = magnitude % kBlock;
  return magnitude < kInBlocks ? step * static_cast<float>(magnitude - lane) + step * static_cast<float>(lane)
                               : most - step * static_cast<float>(kMaxMagnitude - magnitude);
}

/// Turns an image around its centre by `a` radians in [-pi, pi], by Taylor's series up to a^(terms + 1).
ATH_HD inline void set_turn(RandChange& change, double a, int terms, std::int64_t height,
                            std::int64_t width) {
  const double z = a * a;
  double sine = 0, cosine = 0;
  for (int i = terms; i > 0; i -= 2) {
    sine = (1 - sine) * z / (i * (i + 1));
    cosine = (1 - cosine) * z / (i * (i - 1));
  }
  sine = a * (1 - sine);
  cosine = 1 - cosine;
  const double x = double(width) / 2, y = double(height) / 2;
  set_place(change.column, cosine, -sine, x - cosine * x + sine * y);
  set_place(change.row, sine, cosine, y - sine * x - cosine * y);
}

/// A Gaussian of this deviation in pixels, cut off at `radius`.
ATH_HD inline void set_blur(RandChange& change, double deviation, std::int64_t radius) {
  change.blur_radius = static_cast<int>(radius < kMaxBlur ? radius : kMaxBlur);
  double height[kMaxBlur + 1], total = 0;
  for (int i = 0; i <= change.blur_radius; ++i) {
    height[i] = math::exp(-0.5 * i * i / (deviation * deviation));
    total += i == 0 ? height[i] : 2 * height[i];
  }
  change.blur[0] = 1 << kBlurBits;
  for (int i = 1; i <= change.blur_radius; ++i) {
    change.blur[i] = static_cast<std::int32_t>(std::floor((1 << kBlurBits) * height[i] / total + 0.5));
    change.blur[0] -= 2 * change.blur[i];
  }
}

/// `op` at a magnitude in [0, 30]; `negative` reverses its direction, if it has one.
ATH_HD inline RandChange rand_change(RandOp op, bool negative, int magnitude, std::int64_t height,
                                     std::int64_t width, const RandSpace& space = {}) {
  const double share = magnitude / double{kMaxMagnitude}, way = negative ? -1 : 1;
  RandChange change{op, 1, 0xff, 256, {}, {}, 0, {}};
  const auto place = [&](double xx, double xy, double x, double yx, double yy, double y) {
    set_place(change.column, xx, xy, x);
    set_place(change.row, yx, yy, y);
  };
  const auto shift = [&](std::int64_t side) {
    if (space.shift > 0) return way * double(magnitude * space.shift / kMaxMagnitude);
    return way * double(5 * magnitude * side / 331);
  };
  if (op == RandOp::shear_x) place(1, way * space.shear * share, 0, 0, 1, 0);
  if (op == RandOp::shear_y) place(1, 0, 0, way * space.shear * share, 1, 0);
  if (op == RandOp::translate_x) place(1, 0, -shift(width), 0, 1, 0);
  if (op == RandOp::translate_y) place(1, 0, 0, 0, 1, -shift(height));
  if (op == RandOp::rotate) set_turn(change, way * share * space.turn, space.turn_terms, height, width);
  if (op >= RandOp::brightness && op <= RandOp::sharpness)
    change.factor = static_cast<float>(1 + way * double{blend_share(space.blend, magnitude)});
  if (op == RandOp::posterize)
    change.kept_bits = 0xff << static_cast<int>(std::nearbyint(magnitude / space.posterize));
  if (op == RandOp::solarize)
    change.inverted_from = (511 - 17 * magnitude) / 2;  // 255 - 8.5 each, rounded up
  return change;
}

/// Draws operation `number` of a sample.
ATH_HD inline RandChange draw_rand_change(const RandAugment& how, int number, std::int64_t height,
                                          std::int64_t width, const AugmentKey& key, std::int64_t sample) {
  const PhiloxBlock random = draw_augment(key, static_cast<int>(AugmentOp::rand_augment) + number, sample);
  const auto op = static_cast<RandOp>(below(random.word[0], kRandOps));
  return rand_change(op, (random.word[1] & 1) != 0, how.magnitude, height, width);
}

/// A pass over the bytes of images.
struct RandPass {
  enum class Kind : std::uint8_t { rand_augment, trivial_augment, rotation, blur };

  Kind kind = Kind::rand_augment;
  RandAugment how = {};
  int number = 0;    ///< of the operation of RandAugment
  float amount = 0;  ///< Augment::rotation or blur
};

/// Draws the pass of a sample.
ATH_HD inline RandChange draw_change(const RandPass& pass, std::int64_t height, std::int64_t width,
                                     const AugmentKey& key, std::int64_t sample) {
  if (pass.kind == RandPass::Kind::rand_augment)
    return draw_rand_change(pass.how, pass.number, height, width, key, sample);
  if (pass.kind == RandPass::Kind::trivial_augment) {
    const PhiloxBlock random = draw_augment(key, static_cast<int>(AugmentOp::trivial_augment), sample);
    const auto op = static_cast<RandOp>(below(random.word[0], kRandOps));
    const auto magnitude = static_cast<int>(below(random.word[2], kMaxMagnitude + 1));
    return rand_change(op, (random.word[1] & 1) != 0, magnitude, height, width, wide_space());
  }
  RandChange change = rand_change(RandOp::identity, false, 0, height, width);
  if (pass.kind == RandPass::Kind::rotation) {
    const PhiloxBlock random = draw_augment(key, static_cast<int>(AugmentOp::rotation), sample);
    const double share = 2 * (random.word[0] * 0x1p-32) - 1;
    change.op = RandOp::rotate;
    set_turn(change, share * double{pass.amount} * (3.1415926535897932 / 180), wide_space().turn_terms,
             height, width);
    return change;
  }
  const PhiloxBlock random = draw_augment(key, static_cast<int>(AugmentOp::blur), sample);
  if (athanor::random_uniform(random.word[0]) >= pass.amount) return change;
  constexpr double kLeast = 0.1, kMost = 2;
  change.op = RandOp::blur;
  set_blur(change, kLeast + (kMost - kLeast) * (random.word[1] * 0x1p-32),
           (height < width ? height : width) - 1);
  return change;
}

/// ITU-R 601 luma of a pixel of 3 bytes, or the byte of a one-channel pixel.
ATH_HD inline int luma(const std::uint8_t* pixel, std::int64_t channels) {
  if (channels == 1) return pixel[0];
  return (pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16;
}

/// `from` + factor (value - from), clamped and truncated.
ATH_HD inline std::uint8_t blended(int from, int value, float factor) {
  const float mixed = static_cast<float>(from) + factor * static_cast<float>(value - from);
  return static_cast<std::uint8_t>(mixed <= 0 ? 0.0f : mixed >= 255 ? 255.0f : mixed);
}

/// The byte table [256] of a pointwise operation. `histogram` [256], if needed: of the channel or, for
/// contrast, of luma.
ATH_HD inline void fill_table(const RandChange& change, const std::int32_t* histogram, std::uint8_t* table) {
  int low = 256, high = -1;
  std::int64_t sum = 0, moment = 0;
  for (int i = 0; change.counts() && i < 256; ++i) {
    if (histogram[i] == 0) continue;
    low = i < low ? i : low;
    high = i;
    sum += histogram[i];
    moment += std::int64_t{histogram[i]} * i;
  }
  const bool varies = high > low;
  const std::int64_t step = change.op == RandOp::equalize && varies ? (sum - histogram[high]) / 255 : 0;
  const double scale = varies ? 255.0 / (high - low) : 1, offset = varies ? -low * scale : 0;
  const int mean = sum > 0 ? static_cast<int>((2 * moment + sum) / (2 * sum)) : 0;
  std::int64_t before = step / 2;
  for (int i = 0; i < 256; ++i) {
    int to = i;
    if (change.op == RandOp::brightness) to = blended(0, i, change.factor);
    if (change.op == RandOp::contrast) to = blended(mean, i, change.factor);
    if (change.op == RandOp::posterize) to = i & change.kept_bits;
    if (change.op == RandOp::solarize && i >= change.inverted_from) to = 255 - i;
    if (change.op == RandOp::auto_contrast) to = static_cast<int>(i * scale + offset);
    if (step > 0) {
      const std::int64_t rank = before / step;
      to = rank < 255 ? static_cast<int>(rank) : 255;
      before += histogram[i];
    }
    table[i] = static_cast<std::uint8_t>(to < 0 ? 0 : to > 255 ? 255 : to);
  }
}

/// A sum of bytes times both weights.
ATH_HD inline std::uint8_t rounded_blur(std::int64_t sum) {
  return static_cast<std::uint8_t>((sum + (std::int64_t{1} << (2 * kBlurBits - 1))) >> (2 * kBlurBits));
}

/// An image of bytes [height, width, channels] that operations read.
struct RandImage {
  const std::uint8_t* bytes;
  std::int64_t height, width, channels;

  ATH_HD const std::uint8_t* pixel(std::int64_t y, std::int64_t x) const {
    return bytes + (y * width + x) * channels;
  }
};

/// A byte of the result. table [C, 256] is for operations that have one: all that neither move pixels nor
/// read several bytes.
struct RandPixels {
  const RandChange& change;
  const std::uint8_t* table;
  RandImage image;

  ATH_HD std::uint8_t operator()(std::int64_t y, std::int64_t x, std::int64_t c) const {
    const std::uint8_t* at = image.pixel(y, x);
    if (change.moves()) return moved(y, x, c);
    if (change.op == RandOp::color) return blended(luma(at, image.channels), at[c], change.factor);
    if (change.op == RandOp::blur) return blurred(y, x, c);
    if (change.op == RandOp::sharpness) return blended(smoothed(at, y, x, c), at[c], change.factor);
    return table[c * 256 + at[c]];
  }

 private:
  ATH_HD std::uint8_t moved(std::int64_t y, std::int64_t x, std::int64_t c) const {
    const std::int64_t from_x = (change.column[2] + x * change.column[0] + y * change.column[1]) >> 16;
    const std::int64_t from_y = (change.row[2] + x * change.row[0] + y * change.row[1]) >> 16;
    const bool inside = from_x >= 0 && from_x < image.width && from_y >= 0 && from_y < image.height;
    return inside ? image.pixel(from_y, from_x)[c] : std::uint8_t{0};
  }
  /// The mean of a square of pixels, which are mirrored at the edge: one axis after the other, without
  /// rounding between.
  ATH_HD std::uint8_t blurred(std::int64_t y, std::int64_t x, std::int64_t c) const {
    const int radius = change.blur_radius;
    std::int64_t sum = 0;
    for (int dy = -radius; dy <= radius; ++dy) {
      const std::int64_t row = padded_index(y + dy, image.height, Padding::reflect);
      std::int32_t narrow = 0;
      for (int dx = -radius; dx <= radius; ++dx)
        narrow += change.blur[dx < 0 ? -dx : dx] *
                  image.pixel(row, padded_index(x + dx, image.width, Padding::reflect))[c];
      sum += std::int64_t{change.blur[dy < 0 ? -dy : dy]} * narrow;
    }
    return rounded_blur(sum);
  }
  /// The mean over a pixel, with weight 5, and its neighbours; at the edge, the pixel.
  ATH_HD int smoothed(const std::uint8_t* at, std::int64_t y, std::int64_t x, std::int64_t c) const {
    if (y == 0 || x == 0 || y + 1 == image.height || x + 1 == image.width) return at[c];
    int sum = 4 * at[c];
    for (std::int64_t dy = -1; dy <= 1; ++dy) {
      for (std::int64_t dx = -1; dx <= 1; ++dx) sum += image.pixel(y + dy, x + dx)[c];
    }
    return (2 * sum + 13) / 26;
  }
};

/// y[n] = images[rows[n]], changed by what the pass draws for samples[n].
/// images [M, H, W, C] u8, dense, C 1 or 3. rows [N] i64 in [0, M) gathers; undefined: row n. samples [N]
/// i64. y [N, H, W, C] u8, dense, not `images`. Moves two bytes per byte, three with a histogram.
ATH_KERNEL(void, rand_augment, const RandPass& pass, const AugmentKey& key, const Tensor& images,
           const Tensor& rows, const Tensor& samples, Out y);
ATH_MAP(rand_augment,
        (const RandPass&, const AugmentKey&, const Tensor&, const Tensor& rows, const Tensor& samples, Out y),
        "rand_augment", (y, rows, samples), (y))

}  // namespace athanor::kernels
