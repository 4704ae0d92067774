#include "data/image/transform.h"

#include "data/image/resize.h"
#include "tensor/base/error.h"

namespace athanor {

Box draw(const RandomResizedCrop& crop, const ImageSize& size, const DrawKey& key) {
  const kernels::CropBox box =
      kernels::draw_crop(crop, size.height, size.width, {key.seed, key.epoch}, key.sample);
  return {box.top, box.left, box.height, box.width};
}

std::string describe(const ImageTransform& transform) {
  const std::string size = fmt::format("{}x{}", transform.height, transform.width);
  if (const auto& crop = transform.random_crop) {
    return fmt::format("random crop of {} to {} of the area, aspect ratio {} to {}, resized to {}",
                       crop->min_area, crop->max_area, crop->min_ratio, crop->max_ratio, size);
  }
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
}

}  // namespace athanor
