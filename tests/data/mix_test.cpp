#include "data/mix.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/loss.h"
#include "autograd/shape.h"
#include "data/synthetic.h"
#include "kernels/cpu/context.h"
#include "tests/support/errors.h"
#include "tests/support/labelled_batch.h"
#include "tests/support/ranks_run.h"
#include "tests/support/small_tasks.h"
#include "trainer/classifier.h"

namespace athanor::mix_test {

using test::kSmallSpec;
using test::Perceptron;

TEST(Beta, HasItsMeanAndVariance) {
  constexpr int kDraws = 20'000;
  for (const double alpha : {0.2, 0.4, 1.0, 2.0, 8.0}) {
    double sum = 0, squares = 0;
    int low = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double x = draw_beta(alpha, mix_key(1, i, 0));
      ASSERT_TRUE(x >= 0 && x <= 1);
      sum += x;
      squares += (x - 0.5) * (x - 0.5);
      low += x < 0.1;
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kDraws, 0.5, 4 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws, variance, 0.04 * variance) << alpha;
    const double below = alpha == 1 ? 0.1 : 0.028;  // of 2: 3 x^2 - 2 x^3
    if (alpha == 1 || alpha == 2) {
      EXPECT_NEAR(low, below * kDraws, 4 * std::sqrt(below * kDraws));
    }
  }
  for (int i = 0; i < 100; ++i) {
    const double x = draw_beta(1e-3, mix_key(1, i, 0));
    EXPECT_TRUE(x >= 0 && x <= 1);
  }
  EXPECT_ERROR(ArgumentError, draw_beta(0, {}), "draw_beta", "alpha", "0");
}

// The same everywhere. Worked out apart, from the formulas and the words, in Python.
TEST(Beta, HasTheseBits) {
  EXPECT_EQ(draw_beta(0.2, mix_key(7, 3, 1)), 0x1.6714106d4fff1p-2);
  EXPECT_EQ(draw_beta(1, mix_key(7, 3, 1)), 0x1.e07e7be55c1d6p-2);
  EXPECT_EQ(draw_beta(3, mix_key(7, 3, 1)), 0x1.523b3a5c13253p-3);
}

TEST(Mixing, RectanglesLieInsideAndTheShareIsWhatStays) {
  double sum = 0;
  for (std::int64_t step = 0; step < 2000; ++step) {
    const Mixing how = draw_mixing({.cutmix = 1}, 12, 20, mix_key(3, step, 0));
    ASSERT_TRUE(how.cuts && how.top >= 0 && how.left >= 0 && how.height >= 0 && how.width >= 0);
    ASSERT_LE(how.top + how.height, 12);
    ASSERT_LE(how.left + how.width, 20);
    ASSERT_DOUBLE_EQ(how.share, 1 - double(how.height * how.width) / 240);
    sum += how.share;
  }
  EXPECT_GT(sum / 2000, 0.5) << "what lies outside is cut away";
  EXPECT_LT(sum / 2000, 0.8);
}

TEST(Mixing, DrawsWhichOfTheTwoAndByStepAndPass) {
  int cuts = 0;
  for (std::int64_t step = 0; step < 1000; ++step)
    cuts += draw_mixing({.mixup = 0.2, .cutmix = 1}, 8, 8, mix_key(3, step, 0)).cuts;
  EXPECT_NEAR(cuts, 500, 65);
  const auto share = [](std::uint64_t seed, std::int64_t step, std::int64_t pass) {
    const Mixing how = draw_mixing({.mixup = 1}, 8, 8, mix_key(seed, step, pass));
    EXPECT_FALSE(how.cuts);
    return how.share;
  };
  EXPECT_EQ(share(1, 2, 3), share(1, 2, 3));
  EXPECT_NE(share(1, 2, 3), share(2, 2, 3));
  EXPECT_NE(share(1, 2, 3), share(1, 3, 3));
  EXPECT_NE(share(1, 2, 3), share(1, 2, 4));
}

/// Images whose pixels count up, [n, 2, 3, 1].
Tensor counting(std::int64_t n) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < 6 * n; ++i) values.push_back(static_cast<float>(i));
  return Tensor::from(values, {n, 2, 3, 1});
}

TEST(Mix, SumsPairsByTheirShares) {
  const Tensor images = counting(3), labels = Tensor::from(std::vector<std::int64_t>{5, 6, 7}, {3});
  const Tensor partners = Tensor::empty({3}, {DType::i64, kCpu});
  kernels::mix(cpu_context(), {.share = 0.25}, images, labels, partners);
  EXPECT_EQ(partners.to_vector(), (std::vector<double>{7, 6, 5}));
  const std::vector<double> got = images.to_vector();
  for (std::size_t i = 0; i < 6; ++i) {
    const auto k = static_cast<double>(i);
    EXPECT_EQ(got[i], 0.25 * k + 0.75 * (12 + k));
    EXPECT_EQ(got[6 + i], 6 + k) << "its own partner";
    EXPECT_EQ(got[12 + i], 0.25 * (12 + k) + 0.75 * k);
  }
}

TEST(Mix, ExchangesRectangles) {
  const Tensor images = counting(2), labels = Tensor::from(std::vector<std::int64_t>{1, 0}, {2});
  const Tensor partners = Tensor::empty({2}, {DType::i64, kCpu});
  kernels::mix(cpu_context(), {.share = 2.0 / 3, .cuts = true, .top = 0, .left = 1, .height = 2, .width = 1},
               images, labels, partners);
  EXPECT_EQ(images.to_vector(), (std::vector<double>{0, 7, 2, 3, 10, 5, 6, 1, 8, 9, 4, 11}));
  EXPECT_EQ(partners.to_vector(), (std::vector<double>{0, 1}));
}

TEST(Mix, OfABatchSetsWhatTheLossNeedsAndTakesAnySize) {
  for (const std::int64_t n : {0, 1, 5}) {
    Batch batch;
    batch.images = counting(n);
    batch.labels = Tensor::from(std::vector<std::int64_t>(static_cast<std::size_t>(n), 4), {n});
    mix(batch, {.flip = true}, mix_key(1, 1, 0));
    EXPECT_FALSE(batch.partner_labels.defined());
    EXPECT_EQ(batch.images.to_vector(), counting(n).to_vector());
    mix(batch, {.mixup = 1}, mix_key(1, 1, 0));
    EXPECT_EQ(batch.partner_labels.shape(), Shape({n}));
    EXPECT_EQ(batch.own_share, draw_mixing({.mixup = 1}, 2, 3, mix_key(1, 1, 0)).share);
    EXPECT_EQ(batch.images.to_vector() != counting(n).to_vector(), n > 1);
  }
  Batch without;
  without.images = counting(2);
  EXPECT_ERROR(ArgumentError, mix(without, {.mixup = 1}, {}), "mix", "label", "1");
}

TEST(MixedClassifier, WeighsBothLabelsAndCountsTheLargerShare) {
  Perceptron model;
  Batch batch = test::labelled_batch();
  batch.partner_labels = Tensor::from(std::vector<std::int64_t>{1, 3, 4}, {3});
  const Tensor weights = Tensor::from(std::vector<float>{0.5f, 1, 3, 2, 1}, {5});
  const std::vector<double> logits = model(batch.images).to_vector();
  for (const bool weighted : {false, true}) {
    for (const double share : {0.3, 0.8}) {
      batch.own_share = share;
      Classifier task(model, 5, 0.1, weighted ? weights : Tensor());
      Times total;
      PhaseTimes times(total);
      std::int64_t draws = 0;
      MetricSums sums(kCpu);
      Step step({.samples = 3}, draws, {.metrics = sums, .times = times});
      const double got = task.training_step(batch, step).item();
      double want = 0, right = 0;
      for (std::int64_t n = 0; n < 3; ++n) {
        for (const bool own : {true, false}) {
          const Tensor& labels = own ? batch.labels : batch.partner_labels;
          const auto label = static_cast<std::size_t>(labels.data<std::int64_t>()[n]);
          const double loss =
              cross_entropy(model(batch.images), labels, 0.1, Reduction::none).to_vector()[std::size_t(n)];
          want += (own ? share : 1 - share) * loss * (weighted ? weights.to_vector()[label] : 1) / 3;
          const auto row = logits.begin() + n * 5;
          if (own == (share >= 0.5)) right += std::max_element(row, row + 5) - row == std::ptrdiff_t(label);
        }
      }
      EXPECT_NEAR(got, want, 1e-5) << weighted << share;
      EXPECT_NEAR(sums.read()[0], 3 * want, 1e-4) << "what is reported is what is trained on";
      EXPECT_EQ(sums.read()[1], right);
    }
  }
}

TrainerConfig mixing(TrainerConfig config) {
  config.augment.mixup = 0.4;
  config.augment.cutmix = 1;
  return config;
}

TEST(MixedTraining, DiffersFromPlainTrainingAndReportsIt) {
  const TrainerConfig plain = test::small_config();
  const std::uint64_t without = test::run(plain).report.weights_hash;
  for (const bool cuts : {false, true}) {
    TrainerConfig config = plain;
    (cuts ? config.augment.cutmix : config.augment.mixup) = 1;
    const std::uint64_t once = test::run(config).report.weights_hash;
    EXPECT_NE(once, without);
    EXPECT_EQ(once, test::run(config).report.weights_hash);
    config.workers = 2;
    EXPECT_EQ(once, test::run(config).report.weights_hash);
  }
}

TEST(MixedTraining, IsRejectedIfTheTaskDoesNotSupportIt) {
  test::Autoencoder task;
  EXPECT_ERROR(ArgumentError, test::train(task, mixing(test::small_config())), "--augment", "mixup",
               "cutmix");
  TrainerConfig views = mixing(test::small_config());
  views.views = 2;
  EXPECT_ERROR(ArgumentError, test::run(views), "--augment", "mixup", "cutmix");
}

// All ranks have one share, and each mixes its own part, which may be a single image.
TEST(MixedTraining, RanksHaveOneWeight) {
  TrainerConfig config = mixing(test::ranks_config());
  config.max_steps = 12;
  config.accumulate = 2;
  config.augment.rand_augment = RandAugment{};
  const auto ddp = test::train_ranks(3, config);
  test::expect_alike(ddp);
  const auto shards = test::train_ranks(3, test::with(config, Strategy::zero1));
  test::expect_alike(shards);
  EXPECT_EQ(shards[0].report.weights_hash, ddp[0].report.weights_hash);
  EXPECT_NE(test::train_ranks(1, config)[0].report.weights_hash, ddp[0].report.weights_hash)
      << "partners are those of the rank's own part";
  TrainerConfig few = mixing(test::ranks_config());
  few.max_steps = 3;
  few.batch_size = 4;  // two images of the first rank, and one of each other one
  few.sync_bn = true;
  test::expect_alike(test::train_ranks<test::NormedNet>(3, few));
}

class MixedResume : public test::ResumeTest {};

TEST_F(MixedResume, EqualsTheRunThatNeverStopped) {
  TrainerConfig config = mixing(test::resume_config());
  config.augment.rand_augment = RandAugment{.operations = 1, .magnitude = 20};
  config.augment.random_erasing = 0.5;
  expect_equal_from_everywhere(config, 10);
  for (const auto& [part, change] : std::vector<std::pair<std::string, void (*)(Augment&)>>{
           {"mixup:0.4", [](Augment& to) { to.mixup = 0; }},
           {"cutmix:1", [](Augment& to) { to.cutmix = 0; }},
           {"random-erasing:0.5", [](Augment& to) { to.random_erasing = 0; }},
           {"rand-augment:1:20", [](Augment& to) { to.rand_augment->magnitude = 20 + 1; }}}) {
    TrainerConfig other = from(config, file(10).string());
    change(other.augment);
    EXPECT_ERROR(ArgumentError, test::train(other), "--augment", part);
  }
}

}  // namespace athanor::mix_test
