#include "kernels/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/elementwise.h"
#include "data/preprocess.h"
#include "data/synthetic.h"
#include "kernels/cpu/context.h"
#include "tensor/base/error.h"

namespace athanor::augment_test {

Tensor images_of(const ImageSpec& spec, std::int64_t count) {
  const auto data = synthetic(spec, count, 5);
  return Tensor::from(std::vector(data->pixels().begin(), data->pixels().end()),
                      {count, spec.height, spec.width, spec.channels});
}

/// One value of the result, straight from the definition: pad, crop, mirror, blank.
double naive(const Augment& augment, const kernels::AugmentPlan& plan, const std::uint8_t* image,
             const ImageSpec& spec, const std::vector<double>& table, std::int64_t y, std::int64_t x,
             std::int64_t c) {
  if (y >= plan.blank_y && y < plan.blank_y + plan.blank_height && x >= plan.blank_x &&
      x < plan.blank_x + plan.blank_width) {
    return 0;
  }
  std::int64_t from_y = (plan.vertical_flip ? spec.height - 1 - y : y) + plan.dy,
               from_x = (plan.flip ? spec.width - 1 - x : x) + plan.dx;
  const auto reflect = [](std::int64_t i, std::int64_t n) {
    while (i < 0 || i >= n) i = i < 0 ? -i : 2 * (n - 1) - i;
    return i;
  };
  int byte = 0;
  if (augment.padding == Padding::reflect) {
    from_y = reflect(from_y, spec.height);
    from_x = reflect(from_x, spec.width);
  }
  if (from_y >= 0 && from_y < spec.height && from_x >= 0 && from_x < spec.width) {
    const std::uint8_t* pixel = image + (from_y * spec.width + from_x) * spec.channels;
    byte = plan.recolours ? plan.colour(pixel, c) : pixel[c];
  }
  return table[static_cast<std::size_t>(c * 256 + byte)];
}

class AugmentMatchesNaive : public testing::TestWithParam<std::tuple<ImageSpec, Augment, DType>> {};

TEST_P(AugmentMatchesNaive, ForEverySample) {
  auto [spec, augment, dtype] = GetParam();
  augment.pad = std::min({augment.pad, spec.height - 1, spec.width - 1});
  if (spec.channels != 3) augment.colour = {};
  constexpr std::int64_t kImages = 13, kBatch = 37;
  const Tensor images = images_of(spec, kImages);
  std::vector<std::int64_t> rows, samples;
  for (std::int64_t i = 0; i < kBatch; ++i) {
    rows.push_back(i * 7 % kImages);
    samples.push_back(1000 + i * i);
  }
  const Tensor table = Tensor::empty({spec.channels, 256}, {dtype, kCpu});
  dispatch_floating(dtype, "test", [&]<class T>() {
    for (std::int64_t i = 0; i < table.numel(); ++i) {
      table.data<T>()[i] = T(static_cast<Accumulate<T>>(i % 256) / 32 - static_cast<Accumulate<T>>(i / 256));
    }
  });
  const std::vector<double> values = table.to_vector();
  const Tensor y = Tensor::empty({kBatch, spec.height, spec.width, spec.channels}, {dtype, kCpu});
  kernels::augment(cpu_context(), augment, {11, 4}, images, Tensor::from(rows, {kBatch}),
                   Tensor::from(samples, {kBatch}), table, y);
  const std::vector<double> got = y.to_vector();
  std::size_t at = 0;
  for (std::int64_t n = 0; n < kBatch; ++n) {
    const auto i = static_cast<std::size_t>(n);
    const auto plan = kernels::plan_augment(augment, spec.height, spec.width, {11, 4}, samples[i]);
    const std::uint8_t* image = images.data<std::uint8_t>() + rows[i] * spec.bytes();
    for (std::int64_t row = 0; row < spec.height; ++row) {
      for (std::int64_t x = 0; x < spec.width; ++x) {
        for (std::int64_t c = 0; c < spec.channels; ++c, ++at) {
          ASSERT_EQ(got[at], naive(augment, plan, image, spec, values, row, x, c))
              << "n " << n << " y " << row << " x " << x << " c " << c << " dy " << plan.dy << " dx "
              << plan.dx;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, AugmentMatchesNaive,
    testing::Combine(
        testing::Values(ImageSpec{8, 8, 1, 10}, ImageSpec{9, 32, 3, 10}, ImageSpec{3, 5, 4, 2},
                        ImageSpec{1, 1, 1, 1}),
        testing::Values(
            Augment{}, Augment{.pad = 2}, Augment{.pad = 2, .padding = Padding::reflect, .flip = true},
            Augment{.flip = true}, Augment{.pad = 1, .flip = true, .vertical_flip = true},
            Augment{.cutout = 3}, Augment{.pad = 4, .flip = true, .cutout = 8},
            Augment{.colour = {0.4f, 0.4f, 0.4f, 0.1f}},
            Augment{
                .pad = 2, .padding = Padding::reflect, .flip = true, .cutout = 3, .colour = {.hue = 0.5f}}),
        testing::Values(DType::f32, DType::f64, DType::bf16, DType::f16)));

Tensor run(const Augment& augment, const Tensor& images, const Tensor& table, std::int64_t view = 0) {
  const Shape& shape = images.shape();
  const Tensor y = Tensor::empty(shape, table.options());
  const Tensor samples = Tensor::empty({shape[0]}, {DType::i64, kCpu});
  for (std::int64_t i = 0; i < shape[0]; ++i) samples.data<std::int64_t>()[i] = 5 * i;
  kernels::augment(cpu_context(), augment, {11, 4, view}, images, Tensor(), samples, table, y);
  return y;
}

/// Each byte as itself.
Tensor identity(std::int64_t channels, DType dtype) {
  const Tensor table = Tensor::empty({channels, 256}, {dtype, kCpu});
  dispatch_any(dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < table.numel(); ++i)
      table.data<T>()[i] = static_cast<T>(static_cast<float>(i % 256));
  });
  return table;
}

TEST(ResizedCrop, IsBilinearInTheDrawnBox) {
  const ImageSpec spec{9, 13, 3, 2};
  const Tensor images = images_of(spec, 20);
  const std::uint8_t* bytes = images.data<std::uint8_t>();
  for (const bool flip : {false, true}) {
    const Augment augment{.flip = flip, .resized_crop = RandomResizedCrop{}, .vertical_flip = flip};
    const std::vector<double> got = run(augment, images, identity(3, DType::f32)).to_vector();
    std::int64_t mirrored = 0;
    double worst = 0;
    for (std::int64_t n = 0; n < 20; ++n) {
      const auto plan = kernels::plan_augment(augment, 9, 13, {11, 4}, 5 * n);
      ASSERT_TRUE(plan.scales && plan.dy >= 0 && plan.dy + plan.box_height <= 9 && plan.dx >= 0 &&
                  plan.dx + plan.box_width <= 13);
      mirrored += plan.flip;
      const auto place = [](std::int64_t i, std::int64_t start, std::int64_t box, std::int64_t side) {
        const double at =
            (static_cast<double>(i) + 0.5) * static_cast<double>(box) / static_cast<double>(side);
        return std::clamp(at - 0.5, 0.0, static_cast<double>(box - 1)) + static_cast<double>(start);
      };
      for (std::int64_t i = 0; i < spec.bytes(); ++i) {
        const std::int64_t y = i / 39, x = i / 3 % 13, c = i % 3;
        const double sy = place(plan.vertical_flip ? 8 - y : y, plan.dy, plan.box_height, 9),
                     sx = place(plan.flip ? 12 - x : x, plan.dx, plan.box_width, 13);
        double want = 0;
        for (const int dy : {0, 1}) {
          for (const int dx : {0, 1}) {
            const double row = std::floor(sy) + dy, column = std::floor(sx) + dx;
            const double weight = (1 - std::abs(sy - row)) * (1 - std::abs(sx - column));
            if (weight > 0)
              want +=
                  weight * bytes[n * spec.bytes() + (std::int64_t(row) * 13 + std::int64_t(column)) * 3 + c];
          }
        }
        worst = std::max(worst, std::abs(got[static_cast<std::size_t>(n * spec.bytes() + i)] - want));
      }
    }
    EXPECT_LT(worst, 1.6) << "half for the byte, and half for each weight in 1/256";
    EXPECT_EQ(mirrored > 0, flip);
  }
}

TEST(ResizedCrop, OfTheWholeImageIsTheImage) {
  const Tensor images = images_of({8, 8, 3, 2}, 6);
  const Augment all{.resized_crop = RandomResizedCrop{1, 1, 1, 1}};
  EXPECT_EQ(run(all, images, identity(3, DType::f32)).to_vector(), images.to_vector());
  Augment jitter = all;
  jitter.colour = {.brightness = 0.4f, .hue = 0.2f};
  Augment plain = jitter;
  plain.resized_crop = {};
  EXPECT_EQ(run(jitter, images, identity(3, DType::f32)).to_vector(),
            run(plain, images, identity(3, DType::f32)).to_vector());
}

TEST(Masks, AreScaledToTheNearestPixelAndPaddedWith255) {
  Tensor masks = Tensor::empty({30, 7, 5, 1}, {DType::u8, kCpu});
  for (std::int64_t i = 0; i < masks.numel(); ++i) masks.data<std::uint8_t>()[i] = std::uint8_t(i % 35);
  for (const Augment& augment : {Augment{.flip = true, .resized_crop = RandomResizedCrop{}},
                                 Augment{.pad = 3, .flip = true}, Augment{.pad = 1, .vertical_flip = true},
                                 Augment{.resized_crop = RandomResizedCrop{}, .vertical_flip = true},
                                 Augment{.pad = 3, .padding = Padding::reflect, .flip = true}}) {
    const Tensor got = run(augment, masks, identity(1, DType::u8));
    std::int64_t outside = 0;
    for (std::int64_t i = 0; i < got.numel(); ++i) {
      const std::int64_t n = i / 35, y = i / 5 % 7, x = i % 5;
      const auto plan = kernels::plan_augment(augment, 7, 5, {11, 4}, 5 * n);
      const std::int64_t column = plan.flip ? 4 - x : x;
      const std::int64_t line = plan.vertical_flip ? 6 - y : y;
      std::int64_t row = line + plan.dy, at = column + plan.dx;
      if (plan.scales) {
        row = plan.dy + (2 * line + 1) * plan.box_height / 14;
        at = plan.dx + (2 * column + 1) * plan.box_width / 10;
      } else {
        row = kernels::padded_index(row, 7, augment.padding);
        at = kernels::padded_index(at, 5, augment.padding);
      }
      const std::int64_t want = row < 0 || at < 0 ? 255 : row * 5 + at;
      outside += want == 255;
      ASSERT_EQ(got.data<std::uint8_t>()[i], want) << n << " " << y << " " << x;
    }
    EXPECT_EQ(outside > 0, augment.pad > 0 && augment.padding == Padding::zero);
  }
}

TEST(VerticalFlip, IsDrawnForHalfOfTheImagesApartFromFlips) {
  const Augment both{.flip = true, .vertical_flip = true};
  int down = 0, together = 0;
  for (std::int64_t sample = 0; sample < 4000; ++sample) {
    const auto plan = kernels::plan_augment(both, 32, 32, {}, sample);
    EXPECT_EQ(plan.flip, kernels::plan_augment({.flip = true}, 32, 32, {}, sample).flip);
    down += plan.vertical_flip;
    together += plan.vertical_flip && plan.flip;
  }
  EXPECT_NEAR(down, 2000, 128);
  EXPECT_NEAR(together, 1000, 110);
}

TEST(VerticalFlip, MovesPointsAndBoxes) {
  const kernels::AugmentPlan plan{.dy = 2, .vertical_flip = true};
  const float point[2] = {3, 5}, box[4] = {1, 4, 3, 7};
  float to[4];
  kernels::move_point(plan, 10, 20, point, to);
  EXPECT_EQ(std::vector(to, to + 2), (std::vector<float>{3, 7}));
  kernels::move_box(plan, 10, 20, box, to);
  EXPECT_EQ(std::vector(to, to + 4), (std::vector<float>{1, 5, 3, 8}));
}

TEST(Augment, DrawsEachViewIndependently) {
  const Augment augment{.pad = 4, .flip = true, .cutout = 2, .colour = {.hue = 0.3f}};
  int same = 0;
  for (std::int64_t sample = 0; sample < 200; ++sample) {
    const auto one = kernels::plan_augment(augment, 32, 32, {1, 2, 0}, sample);
    const auto two = kernels::plan_augment(augment, 32, 32, {1, 2, 1}, sample);
    same += one.dx == two.dx;
  }
  EXPECT_NEAR(same, 200 / 9, 20) << "one of nine shifts";
}

TEST(Augment, DrawsEveryShiftAndBothSides) {
  std::set<std::int64_t> dy, dx;
  int flips = 0, together = 0;
  constexpr int kSamples = 4000;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const auto plan = kernels::plan_augment({.pad = 4, .flip = true}, 32, 32, {}, sample);
    dy.insert(plan.dy);
    dx.insert(plan.dx);
    flips += plan.flip;
    together += plan.flip && plan.dy > 0;
  }
  EXPECT_EQ(dy.size(), 9u);
  EXPECT_EQ(dx.size(), 9u);
  EXPECT_EQ(std::set<std::int64_t>({*dy.begin(), *dy.rbegin()}), (std::set<std::int64_t>{-4, 4}));
  EXPECT_NEAR(flips, kSamples / 2, 4 * 32);
  EXPECT_NEAR(together, kSamples * 4 / 18, 4 * 27);  // the two do not hang together
}

TEST(Augment, AlternatingFlipsShowEachImageBothWaysInTwoEpochs) {
  constexpr std::int64_t kSamples = 1'000;
  const Augment alternating{.flip = true, .alternate_flip = true};
  const auto flipped = [&](std::int64_t epoch, std::int64_t sample) {
    return kernels::plan_augment(alternating, 32, 32, {.seed = 5, .epoch = epoch}, sample).flip;
  };
  int first = 0;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    // The first epoch's are those of plain flips.
    EXPECT_EQ(flipped(0, sample), kernels::plan_augment({.flip = true}, 32, 32, {.seed = 5}, sample).flip);
    for (std::int64_t epoch = 1; epoch < 5; ++epoch)
      EXPECT_EQ(flipped(epoch, sample), flipped(epoch - 1, sample) != true) << epoch;
    first += flipped(0, sample);
  }
  EXPECT_NEAR(first, kSamples / 2, 80);
}

TEST(Augment, DependsOnSeedEpochAndSampleOnly) {
  const auto shifts = [](std::uint64_t seed, std::int64_t epoch) {
    std::vector<std::int64_t> result;
    for (std::int64_t sample = 0; sample < 20; ++sample) {
      result.push_back(kernels::plan_augment({.pad = 4}, 32, 32, {seed, epoch}, sample).dx);
    }
    return result;
  };
  EXPECT_EQ(shifts(1, 2), shifts(1, 2));
  EXPECT_NE(shifts(1, 2), shifts(1, 3));
  EXPECT_NE(shifts(1, 2), shifts(2, 2));
}

TEST(Augment, CutoutStaysInsideAndCoversTheEdges) {
  bool cut_at_edge = false, whole = false;
  for (std::int64_t sample = 0; sample < 500; ++sample) {
    const auto plan = kernels::plan_augment({.cutout = 8}, 32, 20, {}, sample);
    ASSERT_GE(plan.blank_y, 0);
    ASSERT_LE(plan.blank_y + plan.blank_height, 32);
    ASSERT_LE(plan.blank_x + plan.blank_width, 20);
    ASSERT_GE(plan.blank_height, 4);
    cut_at_edge |= plan.blank_width < 8;
    whole |= plan.blank_width == 8 && plan.blank_height == 8;
  }
  EXPECT_TRUE(cut_at_edge && whole);
}

TEST(RandomErasing, HasItsProbabilityAreaAndRatio) {
  constexpr int kSamples = 4000;
  int erased = 0;
  double shares = 0, logarithms = 0, low = 1, high = 0, flat = 9, tall = 0;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const auto plan = kernels::plan_augment({.random_erasing = 0.25f}, 200, 240, {3, 4}, sample);
    if (plan.blank_height == 0) continue;
    ++erased;
    ASSERT_TRUE(plan.blank_y >= 0 && plan.blank_x >= 0 && plan.blank_y + plan.blank_height <= 200 &&
                plan.blank_x + plan.blank_width <= 240);
    const double share = double(plan.blank_height * plan.blank_width) / (200 * 240);
    const double ratio = double(plan.blank_height) / double(plan.blank_width);
    low = std::min(low, share), high = std::max(high, share);
    flat = std::min(flat, ratio), tall = std::max(tall, ratio);
    shares += share;
    logarithms += std::log(ratio);
  }
  EXPECT_NEAR(erased, kSamples / 4, 4 * 28);
  EXPECT_NEAR(low, 0.02, 0.003);
  EXPECT_NEAR(high, 1.0 / 3, 0.005);
  EXPECT_NEAR(flat, 0.3, 0.02);
  EXPECT_NEAR(tall, 10.0 / 3, 0.2);
  EXPECT_NEAR(shares / erased, (0.02 + 1.0 / 3) / 2, 0.015);
  EXPECT_NEAR(logarithms / erased, 0, 0.1);
}

TEST(RandomErasing, BlanksPicturesAndNoMasks) {
  const Tensor images = images_of({16, 16, 1, 2}, 40);
  const Augment augment{.random_erasing = 1};
  const Tensor table = affine(identity(1, DType::f32), 1, 1);  // no byte becomes 0, what a blank pixel is
  const std::vector<double> got = run(augment, images, table).to_vector();
  for (std::int64_t n = 0; n < 40; ++n) {
    const auto plan = kernels::plan_augment(augment, 16, 16, {11, 4}, 5 * n);
    ASSERT_GT(plan.blank_height * plan.blank_width, 0);
    for (std::int64_t i = 0; i < 256; ++i) {
      const std::int64_t y = i / 16 - plan.blank_y, x = i % 16 - plan.blank_x;
      const bool blank = y >= 0 && y < plan.blank_height && x >= 0 && x < plan.blank_width;
      const std::int64_t at = n * 256 + i;
      ASSERT_EQ(got[static_cast<std::size_t>(at)], blank ? 0 : images.data<std::uint8_t>()[at] + 1)
          << n << " " << i;
    }
  }
  EXPECT_NO_THROW(Preprocess({8, 8, 1, 2}, {{0.0}, {1.0}}, DType::f32, kCpu, augment));
  EXPECT_THROW(Preprocess({8, 8, 1, 2}, {{0.0}, {1.0}}, DType::f32, kCpu, {.cutout = 2, .random_erasing = 1}),
               ArgumentError);
}

/// A pixel's new colours, one step after the other, in double.
std::array<double, 3> recoloured(const double* pixel, double brightness, double contrast, double saturation,
                                 double hue) {
  const double to_yiq[3][3] = {
      {0.299, 0.587, 0.114}, {0.595716, -0.274453, -0.321263}, {0.211456, -0.522591, 0.311135}};
  const double to_rgb[3][3] = {
      {1, 0.9562948, 0.6210251}, {1, -0.2721215, -0.6473810}, {1, -1.1069890, 1.7046149}};
  double yiq[3] = {};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) yiq[i] += to_yiq[i][j] * ((pixel[j] * brightness - 127.5) * contrast + 127.5);
  }
  const double angle = hue * 2 * 3.14159265358979, i = yiq[1] * saturation, q = yiq[2] * saturation;
  yiq[1] = std::cos(angle) * i - std::sin(angle) * q;
  yiq[2] = std::sin(angle) * i + std::cos(angle) * q;
  std::array<double, 3> rgb{};
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t j = 0; j < 3; ++j) rgb[c] += to_rgb[c][j] * yiq[j];
    rgb[c] = std::clamp(rgb[c], 0.0, 255.0);
  }
  return rgb;
}

TEST(Colour, IsBrightnessContrastSaturationAndHueInYiq) {
  double worst = 0;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const PhiloxBlock random = philox({1, 1}, i), bytes = philox({1, 2}, i);
    float factor[4];
    for (int k = 0; k < 4; ++k) factor[k] = 2.2f * random_uniform(random.word[k]);
    const float hue = factor[3] / 2.2f - 0.5f;
    const auto matrix = kernels::colour_matrix(factor[0], factor[1], factor[2], hue);
    std::uint8_t pixel[3];
    double exact[3];
    for (int c = 0; c < 3; ++c) exact[c] = pixel[c] = static_cast<std::uint8_t>(bytes.word[c]);
    const auto want = recoloured(exact, double{factor[0]}, double{factor[1]}, double{factor[2]}, double{hue});
    for (int c = 0; c < 3; ++c) {
      worst = std::max(worst, std::abs(matrix(pixel, c) - want[static_cast<std::size_t>(c)]));
    }
  }
  EXPECT_LT(worst, 0.55);  // 0.5 is what rounding costs
}

TEST(Colour, KnownValues) {
  const std::uint8_t pixel[] = {200, 100, 50};
  const auto colours = [&](const kernels::ColourMatrix& matrix) {
    return std::vector<int>{matrix(pixel, 0), matrix(pixel, 1), matrix(pixel, 2)};
  };
  EXPECT_EQ(colours(kernels::colour_matrix(1, 1, 1, 0)), (std::vector<int>{200, 100, 50}));
  EXPECT_EQ(colours(kernels::colour_matrix(0.5, 1, 1, 0)), (std::vector<int>{100, 50, 25}));
  EXPECT_EQ(colours(kernels::colour_matrix(2, 1, 1, 0)), (std::vector<int>{255, 200, 100}));
  EXPECT_EQ(colours(kernels::colour_matrix(1, 0, 1, 0)), (std::vector<int>{128, 128, 128}));
  EXPECT_EQ(colours(kernels::colour_matrix(1, 1, 0, 0)), (std::vector<int>{124, 124, 124}));   // 124.2
  EXPECT_EQ(colours(kernels::colour_matrix(1, 1, 1, 0.5)), (std::vector<int>{48, 148, 198}));  // 2 luma - x
  EXPECT_EQ(colours(kernels::colour_matrix(1, 1, 1, -0.5)), (std::vector<int>{48, 148, 198}));
  for (int byte = 0; byte < 256; ++byte) {
    const std::uint8_t grey[] = {std::uint8_t(byte), std::uint8_t(byte), std::uint8_t(byte)};
    for (const float hue : {-0.4f, 0.0f, 0.3f}) {  // grey has none
      for (int c = 0; c < 3; ++c) ASSERT_EQ(kernels::colour_matrix(1, 1, 1.7f, hue)(grey, c), byte);
    }
  }
}

TEST(Colour, FactorsAreDrawnFromTheirRanges) {
  double low = 9, high = 0, sum = 0;
  constexpr int kSamples = 4000;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const auto plan = kernels::plan_augment({.colour = {.brightness = 0.4f}}, 8, 8, {}, sample);
    ASSERT_TRUE(plan.recolours);
    // A grey pixel of 1: the row's sum.
    const double factor =
        double(plan.colour.row[0][0] + plan.colour.row[0][1] + plan.colour.row[0][2]) / 16384;
    low = std::min(low, factor);
    high = std::max(high, factor);
    sum += factor;
  }
  EXPECT_NEAR(low, 0.6, 0.003);
  EXPECT_NEAR(high, 1.4, 0.003);
  EXPECT_NEAR(sum / kSamples, 1, 4 * 0.8 / std::sqrt(12.0 * kSamples));
  EXPECT_FALSE(kernels::plan_augment({.flip = true}, 8, 8, {}, 1).recolours);
}

}  // namespace athanor::augment_test
