// --tta: the mean logits of views of an image.
#include "trainer/test_views.h"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/shape.h"
#include "data/digits.h"
#include "nn/models/model.h"
#include "tests/support/errors.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temp_dir.h"
#include "trainer/inference/evaluate.h"
#include "trainer/inference/predictor.h"

namespace athanor::test_views_test {

/// Shows what it is given.
struct Pixels final : nn::Module {
  Tensor forward(const Tensor& x) override {
    ++calls;
    return flatten(x);
  }
  int calls = 0;
};

constexpr std::int64_t kHeight = 3, kWidth = 4;

Tensor image() {
  std::vector<float> values;
  for (int i = 0; i < kHeight * kWidth; ++i) values.push_back(static_cast<float>(i * i));
  return Tensor::from(values, {1, kHeight, kWidth, 1});
}

/// One view of image(), with a reflection at the edge: -1 is 1, 4 of 4 is 2.
double pixel_of_view(std::int64_t y, std::int64_t x, std::int64_t shift, bool mirrored) {
  const auto inside = [](std::int64_t at, std::int64_t side) {
    return at < 0 ? -at : at >= side ? 2 * side - 2 - at : at;
  };
  const std::int64_t row = inside(y + shift, kHeight), column = inside(x + shift, kWidth);
  const auto at = static_cast<double>(row * kWidth + (mirrored ? kWidth - 1 - column : column));
  return at * at;
}

std::vector<double> views_of(TestViews views, int calls) {
  Pixels net;
  const TestTimeAugmentation mean(views, kHeight, kWidth, kCpu);
  const std::vector<double> all = mean(net, image()).to_vector();
  EXPECT_EQ(net.calls, calls);
  return all;
}

TEST(TestViews, OfNoneAreTheNetworksOwn) {
  EXPECT_EQ(views_of(TestViews::none, 1), image().to_vector());
}

TEST(TestViews, OfFlipAreTheMeanWithTheMirrorImage) {
  const std::vector<double> mean = views_of(TestViews::flip, 2);
  for (std::int64_t y = 0; y < kHeight; ++y) {
    for (std::int64_t x = 0; x < kWidth; ++x)
      EXPECT_NEAR(mean[static_cast<std::size_t>(y * kWidth + x)],
                  (pixel_of_view(y, x, 0, false) + pixel_of_view(y, x, 0, true)) / 2, 1e-4);
  }
}

TEST(TestViews, OfSixWeighTheUnshiftedHalf) {
  const std::vector<double> mean = views_of(TestViews::six, 6);
  for (std::int64_t y = 0; y < kHeight; ++y) {
    for (std::int64_t x = 0; x < kWidth; ++x) {
      double expected = 0;
      for (const bool mirrored : {false, true})
        expected += pixel_of_view(y, x, 0, mirrored) / 4 +
                    (pixel_of_view(y, x, -1, mirrored) + pixel_of_view(y, x, 1, mirrored)) / 8;
      EXPECT_NEAR(mean[static_cast<std::size_t>(y * kWidth + x)], expected, 1e-4) << y << ' ' << x;
    }
  }
}

TEST(TestViews, OfAHalfTypeAreAveragedInF32) {
  Pixels net;
  for (const TestViews views : {TestViews::flip, TestViews::six}) {
    const TestTimeAugmentation mean(views, kHeight, kWidth, kCpu);
    const Tensor found = mean(net, cast(image(), DType::bf16));  // which holds these pixels exactly
    EXPECT_EQ(found.dtype(), DType::f32);
    EXPECT_EQ(found.to_vector(), mean(net, image()).to_vector()) << name_of(views);
  }
}

TEST(TestViews, OfSixNeedTwoPixels) {
  EXPECT_ERROR(ArgumentError, TestTimeAugmentation(TestViews::six, 1, 8, kCpu), "--tta six", "1x8");
}

struct Trained {
  test::TempDir folder;
  TrainerConfig config;
  test::RecordedRun run;
  explicit Trained(TestViews views) {
    config.model = "digits_cnn";
    config.max_steps = 20;
    config.batch_size = 32;
    config.val_batch_size = 100;
    config.lr = 0.05;
    config.threads = 1;
    config.deterministic = true;
    config.tta = views;
    config.run_dir = folder.path() / "run";
    const auto model = nn::make_model("digits_cnn", {10, 1, 8}, 1);
    Trainer trainer(config);
    run = test::record(trainer, *model, *digits(Split::train), *digits(Split::test));
  }
  ModelFile model() const { return load_model(config.run_dir / "model.safetensors"); }
};

TEST(TestViews, OfARunAreThoseOfItsEvaluation) {
  const Trained plain(TestViews::none), flipped(TestViews::flip);
  EXPECT_EQ(plain.run.report.weights_hash, flipped.run.report.weights_hash) << "training has no views";
  EXPECT_NE(plain.run.report.test_loss, flipped.run.report.test_loss);
  EXPECT_EQ(plain.model().info.tta, TestViews::none);
  EXPECT_EQ(flipped.model().info.tta, TestViews::flip);
  const auto data = digits(Split::test);
  const auto loss = [&](const Trained& of, const EvaluateOptions& how) {
    return evaluate(of.model(), *data, how).loss();
  };
  EXPECT_EQ(loss(flipped, {}), flipped.run.report.test_loss);
  EXPECT_EQ(loss(flipped, {.tta = TestViews::none}), plain.run.report.test_loss);
  EXPECT_EQ(loss(plain, {.tta = TestViews::flip}), flipped.run.report.test_loss);
}

TEST(TestViews, OfAPredictorAreAskedFor) {
  const Trained trained(TestViews::flip);
  const Predictor plain(trained.config.run_dir), flipped(trained.config.run_dir, kCpu, TestViews::flip);
  Tensor images = Tensor::empty({4, 8, 8, 1}, {DType::u8}),
         mirrored = Tensor::empty({4, 8, 8, 1}, {DType::u8});
  const auto data = digits(Split::test);
  for (std::int64_t i = 0; i < 4; ++i) {
    std::uint8_t* const to = images.data<std::uint8_t>() + i * 64;
    (void)data->read(i, {to, 64});
    for (std::int64_t k = 0; k < 64; ++k)
      mirrored.data<std::uint8_t>()[i * 64 + k] = to[k / 8 * 8 + 7 - k % 8];
  }
  const std::vector<double> a = plain.logits(images).to_vector(), b = plain.logits(mirrored).to_vector(),
                            both = flipped.logits(images).to_vector();
  ASSERT_NE(a, b);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(both[i], (a[i] + b[i]) / 2, 1e-4);
}

}  // namespace athanor::test_views_test
