#include "data/image/transform.h"

#include <array>
#include <cmath>
#include <utility>

#include "data/image/resize.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

constexpr std::array kModes{std::pair{ResizeMode::crop, std::string_view("crop")},
                            std::pair{ResizeMode::pad, std::string_view("pad")},
                            std::pair{ResizeMode::squash, std::string_view("squash")}};
constexpr std::array kResamplings{std::pair{Resampling::bilinear, std::string_view("bilinear")},
                                  std::pair{Resampling::bicubic, std::string_view("bicubic")},
                                  std::pair{Resampling::nearest, std::string_view("nearest")}};

template <class T, std::size_t n>
std::string_view name_in(const std::array<std::pair<T, std::string_view>, n>& names, T value) {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  return "?";
}

template <class T, std::size_t n>
std::optional<T> named_in(const std::array<std::pair<T, std::string_view>, n>& names, std::string_view name) {
  for (const auto& [value, known] : names)
    if (known == name) return value;
  return std::nullopt;
}

}  // namespace

std::string_view name_of(ResizeMode mode) {
  return name_in(kModes, mode);
}
std::optional<ResizeMode> resize_mode_named(std::string_view name) {
  return named_in(kModes, name);
}
std::string_view name_of(Resampling interpolation) {
  return name_in(kResamplings, interpolation);
}
std::optional<Resampling> resampling_named(std::string_view name) {
  return named_in(kResamplings, name);
}

ImageTransform central_crop(const ImageSize& size, double share) {
  ImageTransform transform{.height = size.height, .width = size.width};
  if (size.height == size.width) {
    const double scaled = static_cast<double>(size.height) / share;
    const bool usual = share == kUsualCropShare;  // whose pixels stay what they were
    transform.shorter_side = usual ? std::llround(scaled) : static_cast<std::int64_t>(scaled);
  } else {
    transform.crop_share = share;
  }
  return transform;
}

Box draw(const RandomResizedCrop& crop, const ImageSize& size, const DrawKey& key) {
  const kernels::CropBox box =
      kernels::draw_crop(crop, size.height, size.width, {key.seed, key.epoch}, key.sample);
  return {box.top, box.left, box.height, box.width};
}

std::string describe(const ImageTransform& transform) {
  std::string size = fmt::format("{}x{}", transform.height, transform.width);
  if (transform.interpolation != Resampling::bilinear)
    size += fmt::format(" ({})", name_of(transform.interpolation));
  if (const auto& crop = transform.random_crop) {
    return fmt::format("random crop of {} to {} of the area, aspect ratio {} to {}, resized to {}",
                       crop->min_area, crop->max_area, crop->min_ratio, crop->max_ratio, size);
  }
  if (transform.mode == ResizeMode::pad)
    return fmt::format("resized to fit into {}, padded with {}", size, transform.padding);
  if (transform.mode == ResizeMode::squash) return fmt::format("resized to {}, whatever its ratio", size);
  if (transform.crop_share < 1)
    return fmt::format("centre crop of {} of what covers it, {}", transform.crop_share, size);
  if (transform.shorter_side == 0) return fmt::format("resized to cover {}, centre crop", size);
  return fmt::format("shorter side resized to {}, centre crop of {}", transform.shorter_side, size);
}

void check(const ImageTransform& transform) {
  const auto is_side = [](std::int64_t side) { return side >= 1 && side <= kMaxImageSide; };
  ATH_CHECK(is_side(transform.height) && is_side(transform.width),
            "image transform: height and width must be in [1, {}], but got {}x{}", kMaxImageSide,
            transform.height, transform.width);
  if (transform.random_crop) kernels::check(*transform.random_crop);
  ATH_CHECK(
      transform.shorter_side == 0 || (transform.shorter_side >= std::max(transform.height, transform.width) &&
                                      transform.shorter_side <= kMaxImageSide),
      "image transform: the shorter side must be 0 or in [{}, {}], but got {}",
      std::max(transform.height, transform.width), kMaxImageSide, transform.shorter_side);
  ATH_CHECK(
      transform.crop_share >= kMinCropShare && transform.crop_share <= 1 &&
          (transform.crop_share == 1 || transform.shorter_side == 0),
      "image transform: the share of the crop must be in [{}, 1], and 1 with a shorter side, but got {}",
      kMinCropShare, transform.crop_share);
  ATH_CHECK(transform.padding >= 0 && transform.padding <= 255,
            "image transform: padding must be in [0, 255], but is {}", transform.padding);
}

}  // namespace athanor
