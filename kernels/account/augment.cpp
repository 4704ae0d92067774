#include "kernels/augment.h"

#include "kernels/account/detail/cost.h"
#include "kernels/mix.h"
#include "kernels/rand_augment.h"
#include "kernels/resize.h"

// What is cropped away is counted as read: it depends on what is drawn.

namespace athanor::kernels {

using account::bytes;
using account::launch;

template <>
void augment(AccountContext& context, const Augment&, const AugmentKey&, const Tensor&, const Tensor& rows,
             const Tensor& samples, const Tensor& table, const Tensor& y) {
  account::map(context, "augment", y.numel() + bytes(rows) + bytes(samples) + bytes(table), y);
}
template <>
void augment_points(AccountContext& context, const Augment&, const AugmentKey&, std::int64_t, std::int64_t,
                    const Tensor& samples, const Tensor& x, const Tensor& y) {
  account::map(context, "augment_points", bytes(x) + bytes(samples), y);
}
template <>
void rand_augment(AccountContext& context, const RandAugment&, int, const AugmentKey&, const Tensor&,
                  const Tensor& rows, const Tensor& samples, const Tensor& y) {
  account::map(context, "rand_augment", bytes(y) + bytes(rows) + bytes(samples), y);
}

/// Their windows say which rows are read, so nothing reads the heights.
template <>
void resize_images(AccountContext& context, const Tensor& images, const Tensor& pixels, const Tensor& y) {
  const std::int64_t heights = y.dim(0) * static_cast<std::int64_t>(sizeof(StagedImage::height));
  account::map(context, "resize_images", bytes(images) - heights + bytes(pixels), y);
}

/// Pairs of images, or a rectangle of each; the middle one of an odd number stays.
template <>
void mix(AccountContext& context, const Mixing& how, const Tensor& images, const Tensor& labels,
         const Tensor& partner_labels) {
  if (images.numel() == 0) return;
  const std::int64_t count = images.shape()[0], image = bytes(images) / count,
                     pixel = image / (images.shape()[1] * images.shape()[2]),
                     changed = count / 2 * 2 * (how.cuts ? how.height * how.width * pixel : image);
  launch(context, "mix", changed + bytes(labels), changed + bytes(partner_labels));
}

}  // namespace athanor::kernels
