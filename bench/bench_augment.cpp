#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/bench.h"
#include "data/mix.h"
#include "data/preprocess.h"
#include "tensor/philox.h"

// Batches of bytes to batches that a network takes: normalised alone, and with each way to change them. A row
// is checked against the same images prepared one at a time: what becomes of an image depends on neither the
// batch nor the threads. Bytes are those of the images read once and of the result written once.

namespace athanor::bench {
namespace {

constexpr std::int64_t kImages = 128;
const Normalization kPixels{{0.49, 0.48, 0.45}, {0.25, 0.24, 0.26}};

/// Images [first, first + count) of a set of noise.
Batch images(std::int64_t first, std::int64_t count, std::int64_t side) {
  Batch batch;
  batch.images = Tensor::empty({count, side, side, 3}, {DType::u8, kCpu});
  batch.samples = Tensor::empty({count}, {DType::i64, kCpu});
  batch.labels = Tensor::empty({count}, {DType::i64, kCpu});
  const std::int64_t pixels = side * side * 3;
  for (std::int64_t n = 0; n < count; ++n) {
    batch.samples.data<std::int64_t>()[n] = first + n;
    batch.labels.data<std::int64_t>()[n] = (first + n) % 10;
    for (std::int64_t i = 0; i < pixels; ++i) {
      const auto at = static_cast<std::uint64_t>((first + n) * pixels + i);
      batch.images.data<std::uint8_t>()[n * pixels + i] = static_cast<std::uint8_t>(philox_word({1, 0}, at));
    }
  }
  return batch;
}

double error_against_one_at_a_time(const Preprocess& prepare, const Tensor& together, std::int64_t side) {
  double worst = 0;
  for (std::int64_t n = 0; n < kImages; n += 17) {
    const std::vector<double> alone = prepare(images(n, 1, side), 3, true).to_vector();
    const std::vector<double> all = together.to_vector();
    for (std::size_t i = 0; i < alone.size(); ++i)
      worst = std::fmax(worst, std::fabs(alone[i] - all[static_cast<std::size_t>(n) * alone.size() + i]));
  }
  return worst;
}

void add_preparation(const std::string& name, const Augment& augment, std::int64_t side, DType dtype) {
  const Shape shape{kImages, side, side, 3};
  const auto elements = static_cast<double>(shape.numel());
  const Work work{.bytes = elements * static_cast<double>(1 + size_of(dtype)), .elements = elements};
  add({name, "fwd", dtype, shape_name(shape)}, work, [=] {
    const auto prepare =
        std::make_shared<Preprocess>(ImageSpec{side, side, 3, 10}, kPixels, dtype, kCpu, augment, 7);
    const Batch batch = images(0, kImages, side);
    const double error = error_against_one_at_a_time(*prepare, (*prepare)(batch, 3, true), side);
    return Prepared{[=] { benchmark::DoNotOptimize((*prepare)(batch, 3, true)); }, error, 0};
  });
}

/// In place, so that the images of a row are mixed again and again.
void add_mixing(const std::string& name, const Augment& augment, DType dtype) {
  const Shape shape{kImages, 32, 32, 3};
  const Work work{.bytes = 2 * static_cast<double>(shape.numel()) * static_cast<double>(size_of(dtype))};
  add({name, "fwd", dtype, shape_name(shape)}, work, [=] {
    Batch batch = images(0, kImages, 32);
    batch.images = filled(shape, dtype);
    const std::vector<double> before = batch.images.to_vector();
    const Mixing how = draw_mixing(augment, 32, 32, mix_key(1, 2, 0));
    mix(batch, augment, mix_key(1, 2, 0));
    std::vector<double> expected = before;
    const std::size_t image = before.size() / kImages;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i % image) / 96,
                 column = static_cast<std::int64_t>(i % 96) / 3;
      const bool inside = how.cuts && row >= how.top && row < how.top + how.height && column >= how.left &&
                          column < how.left + how.width;
      const double other = before[(kImages - 1 - i / image) * image + i % image];
      expected[i] = !how.cuts ? how.share * before[i] + (1 - how.share) * other : inside ? other : before[i];
    }
    return Prepared{[=]() mutable { mix(batch, augment, mix_key(1, 2, 0)); },
                    max_error(batch.images, expected), 2 * epsilon_of(dtype)};
  });
}

}  // namespace

void register_all() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    add_preparation("normalise", {}, 32, dtype);
    add_preparation("crop_flip", {.pad = 4, .flip = true}, 32, dtype);
    add_preparation("crop_flip_cutout", {.pad = 4, .flip = true, .cutout = 16}, 32, dtype);
    add_preparation("color_jitter", {.colour = {0.4F, 0.4F, 0.4F, 0.1F}}, 32, dtype);
    add_preparation("resized_crop", {.resized_crop = RandomResizedCrop{}}, 32, dtype);
    add_preparation("rand_augment", {.rand_augment = RandAugment{}}, 32, dtype);
    add_preparation("random_erasing", {.random_erasing = 0.25F}, 32, dtype);
    add_mixing("mixup", {.mixup = 0.2}, dtype);
    add_mixing("cutmix", {.cutmix = 1}, dtype);
  }
}

}  // namespace athanor::bench
