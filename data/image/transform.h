#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/image/image.h"
#include "kernels/augment.h"
#include "kernels/resize.h"

// Which part of an image becomes a sample, how, and its size: what lets a decoder save work.
// kernels::augment changes the pixels (flip, colours, cutout, normalisation) on the device.

namespace athanor {

/// For resized images.
inline constexpr std::int64_t kMaxResizedChannels = 4;

/// The key of a random draw.
struct DrawKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0, sample = 0;
};

/// The part of an image of that size that a crop takes; the same for the same key.
Box draw(const RandomResizedCrop& crop, const ImageSize& size, const DrawKey& key);

/// How an image of another aspect ratio becomes one of a given size.
enum class ResizeMode : std::uint8_t {
  crop,    ///< scaled in proportion until it covers that size; the rest is cropped
  pad,     ///< scaled in proportion until it fits into that size, in the middle of padding (letterbox)
  squash,  ///< scaled to that size, each side on its own
};

/// "crop", "pad" or "squash", as flags and files write it.
std::string_view name_of(ResizeMode mode);
std::optional<ResizeMode> resize_mode_named(std::string_view name);
/// "bilinear", "bicubic" or "nearest".
std::string_view name_of(Resampling interpolation);
std::optional<Resampling> resampling_named(std::string_view name);

/// Of ImageTransform::crop_share.
inline constexpr double kMinCropShare = 0.01, kUsualCropShare = 0.875;
/// The grey around an image in YOLO's letterbox.
inline constexpr int kUsualPadding = 114;

/// Transforms an image of any size to height x width.
struct ImageTransform {
  std::int64_t height = 224, width = 224;
  /// Scales a random part to that size. Without it, by `mode`.
  std::optional<RandomResizedCrop> random_crop = {};
  /// Of ResizeMode::crop: scales the shorter side to this many pixels, the longer one in proportion, and
  /// crops the centre. 0: scales to the smallest size of which `crop_share` of each side covers height x
  /// width.
  std::int64_t shorter_side = 0;
  double crop_share = 1;
  ResizeMode mode = ResizeMode::crop;
  Resampling interpolation = Resampling::bilinear;
  int padding = kUsualPadding;  ///< of ResizeMode::pad: the byte of all channels

  bool operator==(const ImageTransform&) const = default;
};

/// The central part of images: of height x width after scaling to 1 / `share` of it, in whole pixels, as
/// timm's crop_pct and torchvision's presets do. share in (0, 1]. Rounds down as timm does, but the usual
/// share of a square to the nearest.
ImageTransform central_crop(const ImageSize& size, double share);

/// "random part of 8 to 100 %, 224x224": for messages and settings.
std::string describe(const ImageTransform& transform);
/// Throws ArgumentError on an invalid transform.
void check(const ImageTransform& transform);

}  // namespace athanor
