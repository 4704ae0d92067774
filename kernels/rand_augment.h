#pragma once

#include "kernels/augment.h"

// RandAugment on bytes: torchvision's fourteen operations with Pillow's arithmetic, so results match byte for
// byte on a CPU with AVX2, as torchvision's factors depend on the CPU. Geometric operations take the nearest
// pixel, and 0 outside the image. All devices share this code; histograms count integers, so their order does
// not matter.
// Source: Cubuk et al. 2020, arXiv:1909.13719; torchvision's RandAugment, which gave the names.

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
  equalize
};
/// How many operations there are, and the magnitude of the strongest.
constexpr int kRandOps = 14, kMaxMagnitude = 30;

/// An operation on images of one size, at one strength. Trivial, for shared memory.
struct RandChange {
  RandOp op;
  float factor;                           ///< blend factor: 1 leaves an image unchanged
  std::int32_t kept_bits, inverted_from;  ///< for posterize, a mask; for solarize
  std::int64_t row[3], column[3];         ///< for geometric ones: times (x, y, 1), in steps of 2^-16 pixels

  ATH_HD bool moves() const { return op >= RandOp::shear_x && op <= RandOp::rotate; }
  ATH_HD bool counts() const { return op == RandOp::contrast || op >= RandOp::auto_contrast; }
};

/// Sets a row of the matrix that maps a pixel to its source, relative to pixel centres.
ATH_HD inline void set_place(std::int64_t* to, double of_x, double of_y, double offset) {
  const auto fixed = [](double value) { return static_cast<std::int64_t>(std::floor(value * 65536 + 0.5)); };
  to[0] = fixed(of_x);
  to[1] = fixed(of_y);
  to[2] = fixed(offset + of_x * 0.5 + of_y * 0.5);
}

/// 0.9 magnitude / 30 as torch.linspace(0, 0.9, 31) computes it with AVX2: in f32, in blocks of eight, and
/// the rest from the end. A factor that is one ulp off changes bytes whose products are whole numbers.
ATH_HD inline float blend_share(int magnitude) {
  constexpr float kMost = 0.9f, kStep = kMost / kMaxMagnitude;
  constexpr int kBlock = 8, kInBlocks = 24;
  const int lane = magnitude % kBlock;
  return magnitude < kInBlocks
             ? kStep * static_cast<float>(magnitude - lane) + kStep * static_cast<float>(lane)
             : kMost - kStep * static_cast<float>(kMaxMagnitude - magnitude);
}

/// `op` at a magnitude in [0, 30]; `negative` reverses its direction, if it has one.
ATH_HD inline RandChange rand_change(RandOp op, bool negative, int magnitude, std::int64_t height,
                                     std::int64_t width) {
  const double share = magnitude / double{kMaxMagnitude}, way = negative ? -1 : 1;
  RandChange change{op, 1, 0xff, 256, {}, {}};
  const auto place = [&](double xx, double xy, double x, double yx, double yy, double y) {
    set_place(change.column, xx, xy, x);
    set_place(change.row, yx, yy, y);
  };
  const auto shift = [&](std::int64_t side) {
    return way * double(5 * magnitude * side / 331);
  };  // 150 / 331 at 30
  if (op == RandOp::shear_x) place(1, way * 0.3 * share, 0, 0, 1, 0);
  if (op == RandOp::shear_y) place(1, 0, 0, way * 0.3 * share, 1, 0);
  if (op == RandOp::translate_x) place(1, 0, -shift(width), 0, 1, 0);
  if (op == RandOp::translate_y) place(1, 0, 0, 0, 1, -shift(height));
  if (op == RandOp::rotate) {  // at most 30 degrees: Taylor, within 1e-15
    const double a = way * share * 0.52359877559829887, z = a * a;
    double sine = 0, cosine = 0;
    for (int i = 14; i > 0; i -= 2) {
      sine = (1 - sine) * z / (i * (i + 1));
      cosine = (1 - cosine) * z / (i * (i - 1));
    }
    sine = a * (1 - sine);
    cosine = 1 - cosine;
    const double x = double(width) / 2, y = double(height) / 2;
    place(cosine, -sine, x - cosine * x + sine * y, sine, cosine, y - sine * x - cosine * y);
  }
  if (op >= RandOp::brightness && op <= RandOp::sharpness)
    change.factor = static_cast<float>(1 + way * double{blend_share(magnitude)});
  if (op == RandOp::posterize) change.kept_bits = 0xff << static_cast<int>(std::nearbyint(magnitude / 7.5));
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

/// y[n] = operation `number` of RandAugment, drawn for samples[n], on images[rows[n]].
/// images [M, H, W, C] u8, dense, C 1 or 3. rows [N] i64 in [0, M) gathers; undefined: row n. samples [N]
/// i64. y [N, H, W, C] u8, dense, not `images`. Moves two bytes per byte, three with a histogram.
ATH_KERNEL(void, rand_augment, const RandAugment& how, int number, const AugmentKey& key,
           const Tensor& images, const Tensor& rows, const Tensor& samples, Out y);
ATH_MAP(rand_augment,
        (const RandAugment&, int, const AugmentKey&, const Tensor&, const Tensor& rows, const Tensor& samples,
         Out y),
        "rand_augment", (y, rows, samples), (y))

}  // namespace athanor::kernels
