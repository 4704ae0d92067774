#include "data/preprocess.h"

#include <vector>

#include <gtest/gtest.h>

#include "data/synthetic.h"
#include "tensor/base/error.h"

namespace athanor::preprocess_test {

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

TEST(ResizedCrop, IsLeftToADataSetThatDecodes) {
  const ImageSpec spec{8, 8, 1, 10};
  const auto data = synthetic(spec, 20);
  Loader loader(*data, {.batch_size = 20});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  const auto after = [&](const Augment& augment) {
    return Preprocess(spec, measure(*data), DType::f32, kCpu, augment)(batch, 0, true).to_vector();
  };
  const RandomResizedCrop crop;
  EXPECT_EQ(after({.flip = true, .resized_crop = crop, .crops_when_decoded = true}), after({.flip = true}));
  EXPECT_NE(after({.flip = true, .resized_crop = crop}), after({.flip = true}));
}

TEST(Preprocess, RejectsInvalidArguments) {
  const Normalization one{{0.0}, {1.0}};
  EXPECT_THROW(Preprocess({8, 8, 3, 10}, one, DType::f32, kCpu), ArgumentError);
  EXPECT_THROW(Preprocess({8, 8, 1, 10}, one, DType::f32, kCpu, {.pad = 8}), ArgumentError);
  EXPECT_THROW(Preprocess({8, 8, 1, 10}, one, DType::f32, kCpu, {.colour = {.hue = 0.1f}}), ArgumentError);
  const Normalization three{{0.0, 0.0, 0.0}, {1.0, 1.0, 1.0}};
  EXPECT_NO_THROW(Preprocess({8, 8, 3, 10}, three, DType::f32, kCpu, {.colour = {.hue = 0.5f}}));
  EXPECT_THROW(Preprocess({8, 8, 3, 10}, three, DType::f32, kCpu, {.colour = {.hue = 0.6f}}), ArgumentError);
  EXPECT_THROW(Preprocess({8, 8, 3, 10}, three, DType::f32, kCpu, {.colour = {.contrast = -1}}),
               ArgumentError);
  EXPECT_THROW(Preprocess({8, 8, 1, 10}, one, DType::i64, kCpu), ArgumentError);
  const Augment crop{.resized_crop = RandomResizedCrop{}};  // computes in 32 bits
  EXPECT_NO_THROW(Preprocess({16384, 1, 1, 10}, one, DType::f32, kCpu, crop));
  EXPECT_THROW(Preprocess({16385, 1, 1, 10}, one, DType::f32, kCpu, crop), ArgumentError);
  const Augment decoded{.resized_crop = RandomResizedCrop{}, .crops_when_decoded = true};
  EXPECT_NO_THROW(Preprocess({8, 8, 1, 10}, one, DType::f32, kCpu, decoded, 0, 1));
  EXPECT_THROW(Preprocess({8, 8, 1, 10}, one, DType::f32, kCpu, decoded, 0, 2), ArgumentError);
}

}  // namespace athanor::preprocess_test
