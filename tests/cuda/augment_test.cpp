#include "kernels/augment.h"

#include "data/mix.h"
#include "data/preprocess.h"
#include "kernels/cpu/context.h"
#include "kernels/cuda/context.h"
#include "kernels/rand_augment.h"
#include "tests/cuda/device.h"

namespace athanor::augment_test {

using AugmentOnDevice = test::DeviceTest;

struct Size {
  std::int64_t count, height, width, channels;
};

/// A multiprocessor's share of these is more than one tile of each.
constexpr Size kThreeTiles{7, 50, 44, 3};

void check(const Augment& augment, const Size& size, DType dtype, bool gather) {
  const auto [count, height, width, channels] = size;
  const Tensor images = test::filled({{count + 2, height, width, channels}}, DType::u8, {1}, 0, 256);
  const Tensor rows =
      gather ? test::filled({{count}}, DType::i64, {2}, 0, static_cast<double>(count + 2)) : Tensor();
  const Tensor samples = test::filled({{count}}, DType::i64, {3}, 0, 1000);
  const Tensor table = test::filled({{channels, 256}}, dtype, {4}, -3, 3);
  const Tensor y = Tensor::empty({count, height, width, channels}, {dtype, kCpu});
  const Tensor y_on = Tensor::empty(y.shape(), {dtype, test::device()});
  const auto on = [](const Tensor& x) { return x.defined() ? x.to(test::device()) : x; };
  kernels::augment(cpu_context(), augment, {11, 5}, images, rows, samples, table, y);
  kernels::augment(cuda_context(test::device()), augment, {11, 5}, on(images), on(rows), on(samples),
                   on(table), y_on);
  EXPECT_TRUE(test::same_bits(y_on.to(kCpu), y))
      << fmt::format("{} {} pad {} {} flip {} cutout {} hue {}", dtype, y.shape(), augment.pad,
                     int(augment.padding), augment.flip, augment.cutout, augment.colour.hue);
}

TEST_F(AugmentOnDevice, HasTheBitsOfTheCpu) {
  const Augment changes[] = {
      {},
      {.flip = true},
      {.pad = 1, .flip = true, .vertical_flip = true},
      {.resized_crop = RandomResizedCrop{}, .vertical_flip = true},
      {.pad = 2},
      {.pad = 2, .padding = Padding::reflect},
      {.pad = 3, .padding = Padding::reflect, .flip = true, .cutout = 3},
      {.pad = 1, .flip = true, .cutout = 40},
      {.colour = {.brightness = 0.4f, .contrast = 0.4f, .saturation = 0.4f, .hue = 0.1f}},
      {.pad = 3, .flip = true, .cutout = 3, .colour = {.saturation = 2, .hue = 0.5f}},
      {.flip = true, .random_erasing = 0.7f},
      {.flip = true, .cutout = 3, .resized_crop = RandomResizedCrop{}},
      {.colour = {.hue = 0.3f}, .resized_crop = RandomResizedCrop{0.3, 0.5, 0.5, 2}}};
  const Size sizes[] = {{6, 8, 8, 3},   {5, 7, 9, 3},  {4, 8, 8, 1}, {3, 5, 5, 4},  {2, 33, 40, 3},
                        {2, 32, 40, 3}, {2, 4, 6, 17}, {0, 4, 4, 3}, {40, 5, 8, 3}, kThreeTiles};
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::u8}) {
    for (const Augment& augment : changes) {
      for (const Size& size : sizes) {
        if (augment.colour.any() && (size.channels != 3 || dtype == DType::u8)) continue;
        if (size.height == kThreeTiles.height && dtype != DType::f16) continue;  // one is enough
        check(augment, size, dtype, size.count % 2 == 0);
      }
    }
  }
}

TEST_F(AugmentOnDevice, PointsAndBoxesHaveTheBitsOfTheCpu) {
  for (const Augment& augment : {Augment{.pad = 3, .flip = true}, Augment{.pad = 1, .vertical_flip = true},
                                 Augment{.flip = true, .resized_crop = RandomResizedCrop{}}, Augment{}}) {
    for (const Shape& shape : {Shape{5, 3, 4}, Shape{300, 7, 2}, Shape{0, 2, 2}, Shape{2, 0, 4}}) {
      const Tensor x = test::filled({shape}, DType::f32, {1}, -2, 20);
      const Tensor samples = test::filled({{shape[0]}}, DType::i64, {3}, 0, 1000);
      const Tensor y = Tensor::empty(shape, {DType::f32, kCpu}),
                   y_on = Tensor::empty(shape, {DType::f32, test::device()});
      const kernels::AugmentKey key{7, 3, 2};
      kernels::augment_points(cpu_context(), augment, key, 12, 17, samples, x, y);
      kernels::augment_points(cuda_context(test::device()), augment, key, 12, 17, samples.to(test::device()),
                              x.to(test::device()), y_on);
      EXPECT_TRUE(test::same_bits(y_on.to(kCpu), y)) << shape.str();
    }
  }
}

TEST_F(AugmentOnDevice, RandAugmentHasTheBitsOfTheCpu) {
  for (const Size& size : {Size{40, 7, 9, 3}, Size{33, 8, 8, 1}, Size{6, 33, 40, 3}, Size{0, 4, 4, 3}}) {
    for (const int magnitude : {9, 30}) {
      const auto [count, height, width, channels] = size;
      const Tensor images = test::filled({{count + 2, height, width, channels}}, DType::u8, {1}, 20, 230);
      const Tensor samples = test::filled({{count}}, DType::i64, {3}, 0, 1000);
      const Tensor rows = test::filled({{count}}, DType::i64, {2}, 0, static_cast<double>(count + 2));
      const Tensor y = Tensor::empty({count, height, width, channels}, {DType::u8, kCpu});
      const Tensor y_on = Tensor::empty(y.shape(), {DType::u8, test::device()});
      using Kind = kernels::RandPass::Kind;
      for (const kernels::RandPass& pass : {kernels::RandPass{.how = {.magnitude = magnitude}, .number = 1},
                                            kernels::RandPass{.kind = Kind::trivial_augment},
                                            kernels::RandPass{.kind = Kind::rotation, .amount = 180},
                                            kernels::RandPass{.kind = Kind::blur, .amount = 0.7f}}) {
        kernels::rand_augment(cpu_context(), pass, {11, 5, 1}, images, rows, samples, y);
        kernels::rand_augment(cuda_context(test::device()), pass, {11, 5, 1}, images.to(test::device()),
                              rows.to(test::device()), samples.to(test::device()), y_on);
        EXPECT_TRUE(test::same_bits(y_on.to(kCpu), y))
            << y.shape().str() << " " << magnitude << " " << int(pass.kind);
      }
    }
  }
}

TEST_F(AugmentOnDevice, MixedBatchesHaveTheBitsOfTheCpu) {
  const Mixing hows[] = {{.share = 0.3},
                         {.share = 1},
                         {.share = 0.7, .cuts = true, .top = 1, .left = 2, .height = 3, .width = 4},
                         {.share = 1, .cuts = true}};
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    for (const Mixing& how : hows) {
      for (const std::int64_t count : {0, 1, 2, 7, 300}) {
        const Tensor images = test::filled({{count, 5, 6, 3}}, dtype, {1}, -2, 2);
        const Tensor labels = test::filled({{count}}, DType::i64, {3}, 0, 10);
        const Tensor partners = Tensor::empty({count}, {DType::i64, kCpu});
        const Tensor images_on = images.to(test::device()), partners_on = partners.to(test::device());
        kernels::mix(cpu_context(), how, images, labels, partners);
        kernels::mix(cuda_context(test::device()), how, images_on, labels.to(test::device()), partners_on);
        EXPECT_TRUE(test::same_bits(images_on.to(kCpu), images)) << fmt::format("{} {}", dtype, count);
        EXPECT_TRUE(test::same_bits(partners_on.to(kCpu), partners)) << count;
      }
    }
  }
}

// All of it, as training does it: several operations, then the rest, then partners.
TEST_F(AugmentOnDevice, ABatchToTrainOnHasTheBitsOfTheCpu) {
  const ImageSpec spec{9, 8, 3, 10};
  const Augment augment{.pad = 2,
                        .flip = true,
                        .colour = {.hue = 0.2f},
                        .rand_augment = RandAugment{.operations = 3},
                        .random_erasing = 0.5f,
                        .mixup = 1,
                        .cutmix = 1};
  Batch batch;
  batch.images = test::filled({{11, 9, 8, 3}}, DType::u8, {1}, 0, 256);
  batch.labels = test::filled({{11}}, DType::i64, {2}, 0, 10);
  batch.samples = test::filled({{11}}, DType::i64, {3}, 0, 1000);
  const auto prepared = [&](Device device, std::int64_t step) {
    const Normalization pixels{{0.4, 0.5, 0.6}, {0.2, 0.3, 0.25}};
    Batch ready = Preprocess(spec, pixels, DType::f32, device, augment, 5).prepare(batch, 2, true);
    mix(ready, augment, mix_key(5, step, 1));
    return ready;
  };
  for (std::int64_t step = 0; step < 6; ++step) {
    const Batch here = prepared(kCpu, step), there = prepared(test::device(), step);
    EXPECT_EQ(there.own_share, here.own_share);
    EXPECT_TRUE(test::same_bits(there.images.to(kCpu), here.images)) << step;
    EXPECT_TRUE(test::same_bits(there.partner_labels.to(kCpu), here.partner_labels)) << step;
  }
}

// A table of 64 channels is too large for shared memory, and a tile has fewer pixels.
TEST_F(AugmentOnDevice, ManyChannels) {
  check({.pad = 1, .flip = true}, {2, 18, 18, 64}, DType::f32, true);
}

}  // namespace athanor::augment_test
