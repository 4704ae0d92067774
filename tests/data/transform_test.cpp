#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/image/reader.h"
#include "data/image/resize.h"
#include "tensor/base/error.h"
#include "tensor/io/safetensors.h"
#include "tests/support/folder.h"

namespace athanor::transform_test {

TEST(RandomResizedCrop, LiesInsideWithAreaAndRatioInRange) {
  const RandomResizedCrop crop;
  const ImageSize size{375, 500};
  double area_low = 1, area_high = 0, ratio_low = 9, ratio_high = 0;
  bool top = false, left = false, bottom = false, right = false;
  for (std::int64_t sample = 0; sample < 50'000; ++sample) {
    const Box box = draw(crop, size, {1, 2, sample});
    ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.height >= 1 && box.width >= 1);
    ASSERT_LE(box.top + box.height, size.height);
    ASSERT_LE(box.left + box.width, size.width);
    const double area = double(box.height * box.width) / double(size.height * size.width);
    const double ratio = double(box.width) / double(box.height);
    area_low = std::min(area_low, area);
    area_high = std::max(area_high, area);
    ratio_low = std::min(ratio_low, ratio);
    ratio_high = std::max(ratio_high, ratio);
    top |= box.top == 0;
    left |= box.left == 0;
    bottom |= box.top + box.height == size.height;
    right |= box.left + box.width == size.width;
  }
  // Sides are whole pixels, of a hundred at least: areas and ratios are off by a percent at most.
  EXPECT_NEAR(area_low, 0.08, 0.001);
  EXPECT_GT(area_high, 0.97);
  EXPECT_LE(area_high, 1);
  EXPECT_NEAR(ratio_low, 0.75, 0.01);
  EXPECT_NEAR(ratio_high, 4.0 / 3, 0.015);
  EXPECT_TRUE(top && left && bottom && right);
}

TEST(RandomResizedCrop, DrawsAreaLogRatioAndPlaceEvenly) {
  // Small enough to fit at once: then the first draw is the one.
  const RandomResizedCrop crop{.min_area = 0.1, .max_area = 0.5, .min_ratio = 0.5, .max_ratio = 2};
  const ImageSize size{1000, 1000};
  constexpr int kSamples = 40'000, kBins = 8;
  int area[kBins] = {}, ratio[kBins] = {}, y[kBins] = {}, x[kBins] = {};
  double together = 0;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const Box box = draw(crop, size, {3, 0, sample});
    const auto count = [](int* bins, double share) {
      const int bin = static_cast<int>(share * kBins);
      ++bins[bin < 0 ? 0 : bin >= kBins ? kBins - 1 : bin];
      return share - 0.5;
    };
    const double a = count(area, (double(box.height * box.width) / 1e6 - 0.1) / 0.4);
    const double r = count(ratio, (std::log2(double(box.width) / double(box.height)) + 1) / 2);
    count(y, double(box.top) / double(size.height - box.height + 1));
    count(x, double(box.left) / double(size.width - box.width + 1));
    together += a * r;
  }
  for (const int* bins : {area, ratio, y, x}) {
    double chi = 0;
    constexpr double kExpected = 1.0 * kSamples / kBins;
    for (int i = 0; i < kBins; ++i) chi += std::pow(bins[i] - kExpected, 2) / kExpected;
    EXPECT_LT(chi, 35);  // 7 degrees of freedom: one in 100,000
  }
  EXPECT_NEAR(together / kSamples, 0, 5 / 12.0 / std::sqrt(kSamples));
}

TEST(RandomResizedCrop, FallsBackToTheCentreCrop) {
  EXPECT_EQ(draw({.min_area = 0.9}, {10, 1000}, {0, 0, 1}), (Box{0, 493, 10, 13}));  // 10 * 4/3 = 13.3
  EXPECT_EQ(draw({.min_area = 0.9}, {1000, 10}, {0, 0, 1}), (Box{493, 0, 13, 10}));
  EXPECT_EQ(draw({}, {1, 1}, {0, 0, 1}), (Box{0, 0, 1, 1}));
}

TEST(RandomResizedCrop, DependsOnSeedEpochAndSampleAlone) {
  const auto boxes = [](std::uint64_t seed, std::int64_t epoch) {
    std::vector<std::int64_t> lefts;
    for (std::int64_t sample = 0; sample < 10; ++sample)
      lefts.push_back(draw({}, {300, 400}, {seed, epoch, sample}).left);
    return lefts;
  };
  EXPECT_EQ(boxes(1, 2), boxes(1, 2));
  EXPECT_NE(boxes(1, 2), boxes(2, 2));
  EXPECT_NE(boxes(1, 2), boxes(1, 3));
  // What a version draws is what the next one draws: runs go on with it.
  EXPECT_EQ(draw({}, {375, 500}, {7, 3, 42}), (Box{16, 37, 345, 389}));
}

TEST(Transform, EvaluationIsResizeAndCentreCrop) {
  // torchvision: Resize(256) makes 500x375 (w x h) 341x256, CenterCrop(224) takes it from (58, 16).
  const ImageTransform transform{.height = 224, .width = 224, .shorter_side = 256};
  const Placement at = place(transform, {375, 500}, {});
  EXPECT_EQ(at.rows, (Window{375 / 256.0, 16 * 375 / 256.0, 0, 375}));
  EXPECT_EQ(at.columns, (Window{500 / 341.0, 58 * 500 / 341.0, 0, 500}));
  // As small as covers: 40 x 24 of 100 x 50 is 2 pixels for one, and 2 are left over, top and bottom.
  const Placement cover = place({.height = 24, .width = 40}, {50, 100}, {});
  EXPECT_EQ(cover.rows.scale, 50 / 24.0);
  EXPECT_EQ(cover.columns.scale, 50 / 24.0);
  EXPECT_EQ(cover.rows.offset, 0);
  EXPECT_NEAR(cover.columns.offset, (100 - 40 * 50 / 24.0) / 2, 1e-12);
}

/// "pad_bilinear_32x40", "crop_bicubic_24x24_0.875".
ImageTransform transform_named(const std::string& name) {
  std::istringstream words(name);
  std::string mode, interpolation;
  std::getline(words, mode, '_');
  std::getline(words, interpolation, '_');
  ImageTransform transform;
  char between = 0;
  double share = 1;
  words >> transform.height >> between >> transform.width;
  if (words >> between) words >> share;
  if (mode == "crop") transform = central_crop({transform.height, transform.width}, share);
  transform.mode = resize_mode_named(mode).value();
  transform.interpolation = resampling_named(interpolation).value();
  return transform;
}

TEST(Transform, HasTorchvisionsBytes) {
  const StateDict golden =
      safetensors::load(test::folder("ATHANOR_GOLDEN_DIR", ATHANOR_GOLDEN_DIR) + "/resize/photo.safetensors");
  const Tensor photo = golden.tensor("photo");
  const StoredSample stored{{photo.raw_data(), photo.bytes()}, Codec::raw, 41, 61, 3};
  int compared = 0;
  ImageReader reader;
  for (const StateDict::Entry& entry : golden) {
    if (entry.name == "photo") continue;
    const ImageTransform transform = transform_named(entry.name);
    const Tensor want = std::get<Tensor>(entry.value);
    ASSERT_EQ(want.shape(), Shape({transform.height, transform.width, 3})) << entry.name;
    std::vector<std::uint8_t> got(want.bytes());
    reader.read(stored, transform, {}, 3, got);
    int worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(int(got[i]) - int(want.data<std::uint8_t>()[i])));
    // Pillow rounds between the passes, which bilinear resizing does not.
    EXPECT_LE(worst, transform.interpolation == Resampling::bilinear ? 1 : 0) << entry.name;
    ++compared;
  }
  EXPECT_EQ(compared, 33);
}

TEST(Transform, PaddingSurroundsTheWholeImage) {
  const ImageTransform transform{.height = 40, .width = 40, .mode = ResizeMode::pad, .padding = 9};
  const Placement wide = place(transform, {20, 50}, {}), high = place(transform, {51, 20}, {});
  EXPECT_EQ(wide.rows.begin, 12);
  EXPECT_EQ(wide.rows.end, 28);
  EXPECT_FALSE(wide.columns.covers(-1) || wide.columns.covers(40));
  EXPECT_TRUE(wide.columns.covers(0) && wide.columns.covers(39));
  EXPECT_EQ(high.columns.end - high.columns.begin, 16);
  EXPECT_EQ(wide.padding, 9);
  const Placement thin = place(transform, {1, 1000}, {});
  EXPECT_EQ(thin.rows.end - thin.rows.begin, 1) << "is still seen";
}

TEST(Transform, MasksArePaddedWithTheUnknownClass) {
  const std::vector<std::uint8_t> classes{1, 2, 3, 4, 5, 6, 7, 8};  // 2 x 4
  const StoredSample mask{std::as_bytes(std::span(classes)), Codec::raw, 2, 4, 1};
  ImageReader reader;
  const ImageTransform transform{.height = 4, .width = 4, .mode = ResizeMode::pad};
  std::vector<std::uint8_t> out(16);
  reader.read_nearest(place(transform, reader.open(mask), {}), {4, 4}, out);
  EXPECT_EQ(out, (std::vector<std::uint8_t>{255, 255, 255, 255, 1, 2, 3, 4, 5, 6, 7, 8, 255, 255, 255, 255}));
}

TEST(Transform, ARandomPartIsCutOffAtItsEdges) {
  const ImageTransform transform{.height = 20, .width = 30, .random_crop = RandomResizedCrop{}};
  const Box box = draw({}, {375, 500}, {1, 2, 3});
  const Placement at = place(transform, {375, 500}, {1, 2, 3});
  EXPECT_EQ(at.rows, (Window{double(box.height) / 20, double(box.top), box.top, box.top + box.height}));
  EXPECT_EQ(at.columns, (Window{double(box.width) / 30, double(box.left), box.left, box.left + box.width}));
}

TEST(Transform, ARawImageOfTheSizeWantedIsItself) {
  std::vector<std::uint8_t> pixels(12 * 12 * 3 + 1);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 37 % 251);
  for (const std::int64_t channels : {1, 3}) {
    for (const std::int64_t side : {0, 12}) {
      ImageReader reader;
      const auto image = std::as_bytes(std::span(pixels)).first(static_cast<std::size_t>(144 * channels));
      const ImageTransform transform{.height = 12, .width = 12, .shorter_side = side};
      std::vector<std::uint8_t> copied(image.size());
      reader.read({image, Codec::raw, 12, 12, channels}, transform, {}, channels, copied);
      EXPECT_TRUE(std::equal(copied.begin(), copied.end(), pixels.begin()));
      // As every other way to it says, too.
      std::vector<std::uint8_t> resized(image.size());
      Resizer resizer;
      const Placement at = place(transform, {12, 12}, {});
      resizer({pixels.data(), 12, 12, channels, 12 * channels}, at.rows, at.columns, 12, 12, resized);
      EXPECT_EQ(copied, resized);
      // To more channels, or of too few bytes: no copy.
      std::vector<std::uint8_t> colours(144 * 3);
      reader.read({image, Codec::raw, 12, 12, channels}, transform, {}, 3, colours);
      EXPECT_EQ(colours[5], channels == 3 ? pixels[5] : pixels[1]);
      const auto short_image = image.first(image.size() - 1);
      EXPECT_THROW(reader.read({short_image, Codec::raw, 12, 12, channels}, transform, {}, channels, copied),
                   IoError);
    }
  }
}

TEST(Transform, OnlyARawImageThatNeedsNoChangeIsCopied) {
  const std::vector<std::byte> bytes(12 * 9 * 3);
  const auto copies = [&](Codec codec, std::int64_t height, std::int64_t width,
                          const ImageTransform& transform) {
    return ImageReader::copies({bytes, codec, height, width, 3}, transform, 3);
  };
  const ImageTransform same{.height = 12, .width = 9};
  EXPECT_TRUE(copies(Codec::raw, 12, 9, same));
  EXPECT_TRUE(copies(Codec::raw, 12, 9, {.height = 12, .width = 9, .shorter_side = 9}));
  EXPECT_FALSE(copies(Codec::raw, 12, 9, {.height = 12, .width = 9, .shorter_side = 10}));
  EXPECT_FALSE(copies(Codec::raw, 12, 9, {.height = 12, .width = 9, .random_crop = RandomResizedCrop{}}));
  EXPECT_FALSE(copies(Codec::raw, 9, 12, same));
  EXPECT_FALSE(copies(Codec::raw, 12, 10, same)) << "of too few bytes";
  EXPECT_FALSE(copies(Codec::raw, 12, 9, {.height = 12, .width = 9, .crop_share = 0.9}));
  EXPECT_TRUE(copies(Codec::raw, 12, 9, {.height = 12, .width = 9, .mode = ResizeMode::pad}));
  EXPECT_FALSE(copies(Codec::jpeg, 12, 9, same));
  EXPECT_FALSE(ImageReader::copies({bytes, Codec::raw, 12, 9, 3}, same, 1));
}

TEST(Transform, RejectsImpossibleTransforms) {
  EXPECT_NO_THROW(check(ImageTransform{}));
  EXPECT_THROW(check({.height = 0}), ArgumentError);
  EXPECT_THROW(check({.width = 16385}), ArgumentError);
  EXPECT_THROW(check({.shorter_side = 200}), ArgumentError);
  EXPECT_THROW(check({.crop_share = 0}), ArgumentError);
  EXPECT_THROW(check({.shorter_side = 256, .crop_share = 0.9}), ArgumentError);
  EXPECT_THROW(check({.mode = ResizeMode::pad, .padding = 256}), ArgumentError);
  EXPECT_THROW(check({.random_crop = RandomResizedCrop{.min_area = 0}}), ArgumentError);
  EXPECT_THROW(check({.random_crop = RandomResizedCrop{.max_area = 1.1}}), ArgumentError);
  EXPECT_THROW(check({.random_crop = RandomResizedCrop{.min_ratio = 2, .max_ratio = 1}}), ArgumentError);
  EXPECT_NE(describe({.random_crop = RandomResizedCrop{}}), describe(ImageTransform{}));
  EXPECT_NE(describe({.shorter_side = 256}), describe(ImageTransform{}));
}

}  // namespace athanor::transform_test
