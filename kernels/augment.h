#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "kernels/context.h"
#include "kernels/math.h"
#include "tensor/base/error.h"
#include "tensor/philox.h"

// Turns bytes into a network's input in one pass. Every random choice is a function of (seed, epoch, sample,
// view, op), so it does not depend on the batch, the number of workers or the device.
// Moves 1 byte in and one element out per value.

namespace athanor {

/// The pixels outside an image, where a crop extends over its edge.
enum class Padding : std::uint8_t { zero, reflect };

/// Random colour changes for images of 3 channels (RGB), in this order: brightness times a factor, the
/// distance to middle grey (contrast) times a factor, the distance to the pixel's grey (saturation) times a
/// factor, and a hue rotation. Factors are drawn from [max(0, 1 - amount), 1 + amount], the hue from [-hue,
/// hue] turns. Luma and hue plane are those of YIQ, so one matrix does it all, rounded and clamped once.
/// Amounts in [0, 2], hue in [0, 0.5].
struct ColourJitter {
  float brightness = 0, contrast = 0, saturation = 0, hue = 0;

  ATH_HD bool any() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
  bool operator==(const ColourJitter&) const = default;
};

/// A random crop: area as a fraction of the image's, aspect ratio (width / height, log-uniform) and position.
/// After ten draws that do not fit, takes the largest centred crop. Source: Szegedy et al. 2015,
/// arXiv:1409.4842, section 6; torchvision's RandomResizedCrop.
struct RandomResizedCrop {
  double min_area = 0.08, max_area = 1;
  double min_ratio = 3.0 / 4, max_ratio = 4.0 / 3;

  bool operator==(const RandomResizedCrop&) const = default;
};

/// `operations` random operations out of 14, of one magnitude in [0, 30] (kernels/rand_augment.h).
struct RandAugment {
  int operations = 2;  ///< in [1, 16]
  int magnitude = 9;

  bool operator==(const RandAugment&) const = default;
};

/// Random changes to a training image: RandAugment first, TrivialAugment, rotation and blur, then colours,
/// then the others in this order.
struct Augment {
  /// Shifts the image by up to `pad` pixels each way: a crop of a padded image. Reflect needs pad < side.
  std::int64_t pad = 0;
  Padding padding = Padding::zero;
  /// Mirrors half of the images left to right, drawn in each epoch.
  bool flip = false;
  /// With flip: drawn only in the first epoch; the next one mirrors the other half, alternating, so two
  /// epochs show both sides of each image. Source: Jordan 2024, arXiv:2404.00498, section 3.6.
  bool alternate_flip = false;
  /// Blanks a square of this side around a random pixel, clipped to the image. Source: DeVries and Taylor
  /// 2017, arXiv:1708.04552.
  std::int64_t cutout = 0;
  ColourJitter colour = {};
  /// Replaces `pad`: a random part scaled to the size of the whole image, bilinear.
  std::optional<RandomResizedCrop> resized_crop = {};
  /// The data set crops while it decodes (DecodedDataset), so Preprocess does not.
  bool crops_when_decoded = false;
  std::optional<RandAugment> rand_augment = {};
  /// The probability of blanking a rectangle (kernels::draw_erasing), in [0, 1]; not with cutout.
  float random_erasing = 0;
  /// Alpha of Beta(alpha, alpha), the distribution of the shares for mixing images of a batch (data/mix.h);
  /// 0: no mixing. If both are set, each batch draws which to use.
  double mixup = 0, cutmix = 0;
  /// Mirrors half of the images top to bottom, drawn in each epoch.
  bool vertical_flip = false;
  /// One random operation of RandAugment's, of a random and wider range of magnitudes.
  /// Source: Mueller and Hutter 2021, arXiv:2103.10158; torchvision's TrivialAugmentWide.
  bool trivial_augment = false;
  /// Turns images by up to this many degrees each way, around the centre, in [0, 180]; as RandAugment does.
  float rotation = 0;
  /// The probability of a Gaussian blur with a deviation of 0.1 to 2 pixels, in [0, 1]; filters have 23
  /// pixels, fewer in images with shorter sides.
  float blur = 0;

  bool mixes() const { return mixup > 0 || cutmix > 0; }
  bool operator==(const Augment&) const = default;
};

namespace kernels {

/// A colour transform in steps of 2^-14: bytes in, bytes out, the same on every device.
struct ColourMatrix {
  static constexpr int kBits = 14;
  std::int32_t row[3][4];  // the last column is added; it includes the rounding half

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

/// The key of a sample's random changes, besides its number. View 0 equals a single view.
struct AugmentKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t view = 0;  ///< below 256
  /// On the device: replaces `epoch` when the kernel runs, for a kernel that is captured once.
  const std::int64_t* epoch_then = nullptr;

  ATH_HD AugmentKey now() const { return {seed, epoch_then ? *epoch_then : epoch, view}; }
};

/// The purpose of a draw: the minor number of its stream. Attempts at a resized crop or erasing, and
/// operations of RandAugment, use consecutive numbers; each view has 256 of its own.
enum class AugmentOp : std::uint8_t {
  crop = 0,
  flip = 1,
  cutout = 2,
  colour = 3,
  erases = 4,
  vertical_flip = 5,
  trivial_augment = 6,
  rotation = 7,
  blur = 8,
  resized_crop = 16,
  erasing = 32,
  rand_augment = 64
};

ATH_HD inline PhiloxBlock draw_augment(const AugmentKey& key, int op, std::int64_t sample) {
  const auto stream = random_stream(RandomPurpose::augment, static_cast<std::uint64_t>(key.epoch),
                                    static_cast<std::uint64_t>(key.view * 256 + op));
  return philox({key.seed, stream}, static_cast<std::uint64_t>(sample));
}

/// 32 random bits times a range below 2^16: the bias is below 2^-16.
ATH_HD inline std::int64_t below(std::uint32_t word, std::int64_t range) {
  return static_cast<std::int64_t>((std::uint64_t{word} * static_cast<std::uint64_t>(range)) >> 32);
}

/// A part of an image, in pixels.
struct CropBox {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
};

/// Throws ArgumentError on an impossible area or ratio.
inline void check(const RandomResizedCrop& crop) {
  ATH_CHECK(crop.min_area > 0 && crop.min_area <= crop.max_area && crop.max_area <= 1 &&
                crop.min_ratio >= 1e-3 && crop.min_ratio <= crop.max_ratio && crop.max_ratio <= 1e3,
            "resized crop: a random part must have an area in (0, 1] and a ratio in [0.001, 1000], but got "
            "[{}, {}] and [{}, {}]",
            crop.min_area, crop.max_area, crop.min_ratio, crop.max_ratio);
}

/// Draws the part of a height x width image to crop.
ATH_HD inline CropBox draw_crop(const RandomResizedCrop& crop, std::int64_t image_height,
                                std::int64_t image_width, const AugmentKey& key, std::int64_t sample) {
  constexpr int kAttempts = 10;
  const auto height = static_cast<double>(image_height), width = static_cast<double>(image_width);
  const double low = math::log(crop.min_ratio), high = math::log(crop.max_ratio);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const PhiloxBlock random = draw_augment(key, static_cast<int>(AugmentOp::resized_crop) + attempt, sample);
    const double share = random.word[0] * 0x1p-32, at = random.word[1] * 0x1p-32;
    const double area = height * width * (crop.min_area + (crop.max_area - crop.min_area) * share);
    const double ratio = math::exp(low + (high - low) * at);
    const auto w = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * ratio)));
    const auto h = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / ratio)));
    if (w < 1 || h < 1 || w > image_width || h > image_height) continue;
    return {below(random.word[2], image_height - h + 1), below(random.word[3], image_width - w + 1), h, w};
  }
  CropBox box{0, 0, image_height, image_width};
  const auto within = [](double side, std::int64_t most) {
    const auto rounded = static_cast<std::int64_t>(std::nearbyint(side));
    return rounded < 1 ? 1 : rounded > most ? most : rounded;
  };
  if (width / height < crop.min_ratio) {
    box.height = within(width / crop.min_ratio, image_height);
  } else if (width / height > crop.max_ratio) {
    box.width = within(height * crop.max_ratio, image_width);
  }
  box.top = (image_height - box.height) / 2;
  box.left = (image_width - box.width) / 2;
  return box;
}

/// The changes to one sample: out[y][x] is in[y + dy][x + dx], mirrored or not, outside the blank rectangle.
/// When scaling, (dy, dx) is the corner of the box that becomes the whole image.
struct AugmentPlan {
  std::int64_t dy = 0, dx = 0;
  bool flip = false;
  std::int64_t blank_y = 0, blank_x = 0, blank_height = 0, blank_width = 0;
  bool recolours = false;
  ColourMatrix colour{};
  bool scales = false;
  std::int64_t box_height = 0, box_width = 0;
  bool vertical_flip = false;
};

/// The fraction of an image's area that random erasing blanks.
constexpr float kMinErased = 0.02f, kMaxErased = 1.0f / 3;

/// Draws the rectangle, with height / width in [0.3, 10 / 3], log-uniform; none after ten draws that do not
/// fit. Source: Zhong et al. 2017, arXiv:1708.04896; torchvision's RandomErasing.
ATH_HD inline void draw_erasing(float probability, std::int64_t height, std::int64_t width,
                                const AugmentKey& key, std::int64_t sample, AugmentPlan& plan) {
  const auto draw = [&](AugmentOp op, int number) {
    return draw_augment(key, static_cast<int>(op) + number, sample);
  };
  if (athanor::random_uniform(draw(AugmentOp::erases, 0).word[0]) >= probability) return;
  constexpr float kLogRatio = 1.2039728f;  // of 10 / 3
  for (int attempt = 0; attempt < 10; ++attempt) {
    const PhiloxBlock random = draw(AugmentOp::erasing, attempt);
    const float share = kMinErased + (kMaxErased - kMinErased) * athanor::random_uniform(random.word[0]);
    const float ratio = math::exp(kLogRatio * (2 * athanor::random_uniform(random.word[1]) - 1));
    const float area = share * static_cast<float>(height * width);
    const auto h = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * ratio)));
    const auto w = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / ratio)));
    if (h < 1 || w < 1 || h >= height || w >= width) continue;
    plan.blank_height = h;
    plan.blank_width = w;
    plan.blank_y = below(random.word[2], height - h + 1);
    plan.blank_x = below(random.word[3], width - w + 1);
    return;
  }
}

/// Draws a sample's plan except erasing and resized crop, which double a kernel's registers.
ATH_HD inline AugmentPlan plan_unscaled(const Augment& augment, std::int64_t height, std::int64_t width,
                                        const AugmentKey& key, std::int64_t sample) {
  const auto draw = [&](AugmentOp op) { return draw_augment(key, static_cast<int>(op), sample); };
  AugmentPlan plan;
  if (augment.pad > 0) {
    const PhiloxBlock random = draw(AugmentOp::crop);
    plan.dy = below(random.word[0], 2 * augment.pad + 1) - augment.pad;
    plan.dx = below(random.word[1], 2 * augment.pad + 1) - augment.pad;
  }
  if (augment.flip) {
    AugmentKey first = key;
    if (augment.alternate_flip) first.epoch = 0;
    const PhiloxBlock random = draw_augment(first, static_cast<int>(AugmentOp::flip), sample);
    plan.flip = ((random.word[0] ^ static_cast<std::uint32_t>(key.epoch - first.epoch)) & 1u) != 0;
  }
  if (augment.vertical_flip) plan.vertical_flip = (draw(AugmentOp::vertical_flip).word[0] & 1u) != 0;
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
  plan.recolours = jitter.any();
  if (plan.recolours) {
    const PhiloxBlock random = draw(AugmentOp::colour);
    const auto factor = [](std::uint32_t word, float amount) {
      const float low = amount < 1 ? 1 - amount : 0.0f;
      return low + (1 + amount - low) * athanor::random_uniform(word);
    };
    plan.colour =
        colour_matrix(factor(random.word[0], jitter.brightness), factor(random.word[1], jitter.contrast),
                      factor(random.word[2], jitter.saturation),
                      jitter.hue * (2 * athanor::random_uniform(random.word[3]) - 1));
  }
  return plan;
}

/// Draws the plan of a sample: the same on every device.
ATH_HD inline AugmentPlan plan_augment(const Augment& augment, std::int64_t height, std::int64_t width,
                                       const AugmentKey& key, std::int64_t sample) {
  AugmentPlan plan = plan_unscaled(augment, height, width, key, sample);
  if (augment.random_erasing > 0) draw_erasing(augment.random_erasing, height, width, key, sample, plan);
  if (augment.resized_crop) {
    const CropBox box = draw_crop(*augment.resized_crop, height, width, key, sample);
    plan.scales = true;
    plan.dy = box.top;
    plan.dx = box.left;
    plan.box_height = box.height;
    plan.box_width = box.width;
  }
  return plan;
}

/// The pixel at position i of a padded image, -side < i < 2 side - 1; -1 in zero padding.
template <class I> ATH_HD I padded_index(I i, std::type_identity_t<I> side, Padding padding) {
  if (i >= 0 && i < side) return i;
  if (padding == Padding::zero) return -1;
  return i < 0 ? -i : 2 * (side - 1) - i;
}

/// The two box pixels between which pixel i of the whole image lies, and the weight of the second in steps of
/// 1/256. Pixel i of `side` is centred at (i + 1/2) box / side.
struct Tap {
  std::int64_t low = 0, high = 0, nearest = 0;
  std::int32_t weight = 0;

  Tap() = default;
  ATH_HD Tap(std::int64_t i, std::int64_t start, std::int64_t box, std::int64_t side) {
    // Sides are at most 2^14: no product exceeds 32 bits, and centres halfway between two pixels are exact.
    const auto twice = static_cast<std::uint32_t>(2 * side),
               over = static_cast<std::uint32_t>((2 * i + 1) * box);
    const std::int64_t centre = (std::int64_t{over / twice} << 16) + ((over % twice) << 16) / twice;
    const std::int64_t at = centre < 32768 ? 0 : centre - 32768, last = start + box - 1;
    const auto inside = [last](std::int64_t pixel) { return pixel < last ? pixel : last; };
    low = inside(start + (at >> 16));
    high = inside(low + 1);
    nearest = inside(start + (centre >> 16));
    weight = static_cast<std::int32_t>(((at & 65535) + 128) >> 8);
  }
};

/// Interpolates between the bytes of four pixels, two above and the two under them, with the weights of both
/// Taps: rounded to a byte, the same on every device.
ATH_HD inline std::uint8_t between(const std::int32_t (&four)[4], std::int32_t down, std::int32_t right) {
  const std::int32_t above = four[0] * (256 - right) + four[1] * right;
  const std::int32_t under = four[2] * (256 - right) + four[3] * right;
  return static_cast<std::uint8_t>((above * (256 - down) + under * down + 32768) >> 16);
}
ATH_HD inline std::uint8_t between(const std::uint8_t* image, std::int64_t width, std::int64_t channels,
                                   const Tap& y, const Tap& x, std::int64_t channel) {
  const auto at = [&](std::int64_t row, std::int64_t column) {
    return std::int32_t{image[(row * width + column) * channels + channel]};
  };
  return between({at(y.low, x.low), at(y.low, x.high), at(y.high, x.low), at(y.high, x.high)}, y.weight,
                 x.weight);
}

/// Moves a point of the image (x, y), in pixels from its upper left corner, by a plan.
ATH_HD inline void move_point(const AugmentPlan& plan, std::int64_t height, std::int64_t width,
                              const float* from, float* to) {
  const auto scale = [&](std::int64_t whole, std::int64_t box) {
    return plan.scales ? static_cast<float>(whole) / static_cast<float>(box) : 1.0f;
  };
  const float x = (from[0] - static_cast<float>(plan.dx)) * scale(width, plan.box_width);
  to[0] = plan.flip ? static_cast<float>(width) - x : x;
  const float y = (from[1] - static_cast<float>(plan.dy)) * scale(height, plan.box_height);
  to[1] = plan.vertical_flip ? static_cast<float>(height) - y : y;
}

/// Moves a box (x0, y0, x1, y1), clipped to the image: 0, 0, 0, 0 if nothing of it remains.
ATH_HD inline void move_box(const AugmentPlan& plan, std::int64_t height, std::int64_t width,
                            const float* from, float* to) {
  move_point(plan, height, width, from, to);
  move_point(plan, height, width, from + 2, to + 2);
  const auto exchange = [to](int low) {
    const float high = to[low];
    to[low] = to[low + 2];
    to[low + 2] = high;
  };
  if (plan.flip) exchange(0);
  if (plan.vertical_flip) exchange(1);
  const float sides[2] = {static_cast<float>(width), static_cast<float>(height)};
  for (int i = 0; i < 4; ++i) to[i] = to[i] < 0 ? 0.0f : to[i] > sides[i % 2] ? sides[i % 2] : to[i];
  if (to[0] < to[2] && to[1] < to[3]) return;
  for (int i = 0; i < 4; ++i) to[i] = 0;
}

/// The class of mask pixels with unknown class.
constexpr std::uint8_t kUnknownClass = 255;
/// The byte outside an image or, for T = u8, outside a mask.
template <class T> constexpr std::uint8_t kOutside = std::is_same_v<T, std::uint8_t> ? kUnknownClass : 0;

/// y[n] = table[c][images[rows[n]] changed by augment], for each sample n.
/// images [M, H, W, C] u8, dense. rows [N] i64 in [0, M) gathers; undefined: row n. samples [N] i64: each
/// sample's number, the key of its changes. table [C, 256], of y's dtype, maps a byte of channel c. y [N, H,
/// W, C], dense: floating, or u8 for masks. A padded pixel has bytes 0, whatever the colours; a blanked one
/// is 0 in y. Masks are scaled to the nearest pixel and padded with kUnknownClass. Colour changes require C =
/// 3.
ATH_KERNEL(void, augment, const Augment& augment, const AugmentKey& key, const Tensor& images,
           const Tensor& rows, const Tensor& samples, const Tensor& table, Out y);

/// Moves points [N, K, 2] or boxes [N, K, 4], f32, dense, of images of height x width, into y of that shape:
/// see move_point() and move_box().
ATH_KERNEL(void, augment_points, const Augment& augment, const AugmentKey& key, std::int64_t height,
           std::int64_t width, const Tensor& samples, const Tensor& x, Out y);
ATH_MAP(augment_points,
        (const Augment&, const AugmentKey&, std::int64_t, std::int64_t, const Tensor& samples,
         const Tensor& x, Out y),
        "augment_points", (x, samples), (y))

}  // namespace kernels
}  // namespace athanor
