#include "kernels/augment.h"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "data/preprocess.h"
#include "data/synthetic.h"
#include "tensor/error.h"

namespace athanor {
namespace {

/// One value of the result, straight from the definition: pad, crop, mirror, blank.
double naive(const Augment& augment, const kernels::AugmentPlan& plan, const std::uint8_t* image,
             const ImageSpec& spec, const std::vector<double>& table, std::int64_t y, std::int64_t x,
             std::int64_t c) {
  if (y >= plan.blank_y && y < plan.blank_y + plan.blank_height && x >= plan.blank_x &&
      x < plan.blank_x + plan.blank_width) {
    return 0;
  }
  std::int64_t from_y = y + plan.dy, from_x = (plan.flip ? spec.width - 1 - x : x) + plan.dx;
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
    byte = image[(from_y * spec.width + from_x) * spec.channels + c];
  }
  return table[static_cast<std::size_t>(c * 256 + byte)];
}

class AugmentMatchesNaive : public testing::TestWithParam<std::tuple<ImageSpec, Augment, DType>> {};

TEST_P(AugmentMatchesNaive, ForEverySample) {
  auto [spec, augment, dtype] = GetParam();
  augment.pad = std::min({augment.pad, spec.height - 1, spec.width - 1});
  constexpr std::int64_t kImages = 13, kBatch = 37;
  const auto data = synthetic(spec, kImages, 5);
  const Tensor images = Tensor::from(std::vector(data->pixels().begin(), data->pixels().end()),
                                     {kImages, spec.height, spec.width, spec.channels});
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
  kernels::augment(cpu_context(), augment, 11, 4, images, Tensor::from(rows, {kBatch}),
                   Tensor::from(samples, {kBatch}), table, y);
  const std::vector<double> got = y.to_vector();
  std::size_t at = 0;
  for (std::int64_t n = 0; n < kBatch; ++n) {
    const auto i = static_cast<std::size_t>(n);
    const auto plan = kernels::plan_augment(augment, spec.height, spec.width, 11, 4, samples[i]);
    const std::uint8_t* image = data->pixels().data() + rows[i] * spec.bytes();
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
    testing::Combine(testing::Values(ImageSpec{8, 8, 1, 10}, ImageSpec{9, 32, 3, 10}, ImageSpec{3, 5, 4, 2},
                                     ImageSpec{1, 1, 1, 1}),
                     testing::Values(Augment{}, Augment{.pad = 2},
                                     Augment{.pad = 2, .padding = Padding::reflect, .flip = true},
                                     Augment{.flip = true}, Augment{.cutout = 3},
                                     Augment{.pad = 4, .flip = true, .cutout = 8}),
                     testing::Values(DType::f32, DType::f64, DType::bf16, DType::f16)));

TEST(Augment, DrawsEveryShiftAndBothSides) {
  std::set<std::int64_t> dy, dx;
  int flips = 0, together = 0;
  constexpr int kSamples = 4000;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const auto plan = kernels::plan_augment({.pad = 4, .flip = true}, 32, 32, 0, 0, sample);
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

TEST(Augment, DependsOnSeedEpochAndSampleOnly) {
  const auto shifts = [](std::uint64_t seed, std::int64_t epoch) {
    std::vector<std::int64_t> result;
    for (std::int64_t sample = 0; sample < 20; ++sample) {
      result.push_back(kernels::plan_augment({.pad = 4}, 32, 32, seed, epoch, sample).dx);
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
    const auto plan = kernels::plan_augment({.cutout = 8}, 32, 20, 0, 0, sample);
    ASSERT_GE(plan.blank_y, 0);
    ASSERT_LE(plan.blank_y + plan.blank_height, 32);
    ASSERT_LE(plan.blank_x + plan.blank_width, 20);
    ASSERT_GE(plan.blank_height, 4);
    cut_at_edge |= plan.blank_width < 8;
    whole |= plan.blank_width == 8 && plan.blank_height == 8;
  }
  EXPECT_TRUE(cut_at_edge && whole);
}

TEST(Preprocess, NormalisesToZeroMeanAndUnitDeviation) {
  const ImageSpec spec{6, 6, 3, 10};
  const auto data = synthetic(spec, 50);
  const Preprocess preprocess(spec, measure(*data), DType::f64, kCpu);
  Loader loader(*data, {.batch_size = 50});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  const std::vector<double> values = preprocess(batch, 0, true).to_vector();
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (std::size_t i = c; i < values.size(); i += 3) {
      sum += values[i];
      squares += values[i] * values[i];
    }
    const double n = static_cast<double>(values.size()) / 3;
    EXPECT_NEAR(sum / n, 0, 1e-12);
    EXPECT_NEAR(squares / n, 1, 1e-12);
  }
}

TEST(Preprocess, ChangesImagesInTrainingOnly) {
  const ImageSpec spec{8, 8, 1, 10};
  const auto data = synthetic(spec, 20);
  const Preprocess preprocess(spec, measure(*data), DType::f32, kCpu, {.pad = 2});
  Loader loader(*data, {.batch_size = 20});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  const auto plain = preprocess(batch, 0, false).to_vector();
  EXPECT_EQ(preprocess(batch, 1, false).to_vector(), plain);
  EXPECT_NE(preprocess(batch, 0, true).to_vector(), plain);
  EXPECT_NE(preprocess(batch, 1, true).to_vector(), preprocess(batch, 0, true).to_vector());
  EXPECT_EQ(preprocess(batch, 1, true).to_vector(), preprocess(batch, 1, true).to_vector());
}

TEST(Preprocess, RefusesWhatDoesNotFit) {
  const Normalization one{{0.0}, {1.0}};
  EXPECT_THROW(Preprocess({8, 8, 3, 10}, one, DType::f32, kCpu), ArgumentError);
  EXPECT_THROW(Preprocess({8, 8, 1, 10}, one, DType::f32, kCpu, {.pad = 8}), ArgumentError);
  EXPECT_THROW(Preprocess({8, 8, 1, 10}, one, DType::i64, kCpu), ArgumentError);
}

}  // namespace
}  // namespace athanor
