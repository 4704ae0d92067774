#include "trainer/classifier.h"

#include <cmath>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/loss.h"
#include "data/in_memory.h"
#include "data/synthetic.h"
#include "tests/support/errors.h"
#include "tests/support/labelled_batch.h"
#include "tests/support/small_tasks.h"
#include "tests/support/small_training.h"
#include "trainer/metric_sums.h"
#include "trainer/phase_times.h"

namespace athanor::classifier_test {

using test::kSmallSpec;
using test::Perceptron;

InMemoryDataset labelled(const std::vector<std::int64_t>& labels) {
  const ImageSpec spec{1, 1, 1, 4};
  return {spec, std::vector<std::uint8_t>(labels.size(), 7), labels};
}

TEST(BalancedWeights, AreInverseToSizesWithMeanOneOverImages) {
  const InMemoryDataset data = labelled({0, 0, 0, 0, 1, 3, 3, 0});  // 5, 1, 0 and 2 of 8, in three classes
  const std::vector<double> weights = balanced_weights(data).to_vector();
  const std::vector<double> want{8.0 / (3 * 5), 8.0 / 3, 0, 8.0 / (3 * 2)};
  ASSERT_EQ(weights.size(), want.size());
  for (std::size_t c = 0; c < want.size(); ++c) EXPECT_FLOAT_EQ(weights[c], want[c]) << c;
  double sum = 0;
  for (std::int64_t i = 0; i < data.size(); ++i) sum += weights[static_cast<std::size_t>(data.label(i))];
  EXPECT_NEAR(sum, 8, 1e-6);
  const auto shared = std::shared_ptr<const Dataset>(new InMemoryDataset(labelled({0, 1, 1, 2})));
  const Subset part(shared, {1, 2, 3});
  EXPECT_EQ(part.label(2), 2);
  EXPECT_FLOAT_EQ(balanced_weights(part).to_vector()[1], 0.75);
}

TEST(ClassWeights, AreNamed) {
  const InMemoryDataset data = labelled({0, 0, 1, 3});
  EXPECT_FALSE(class_weights({}, data).defined());
  EXPECT_EQ(class_weights({.of = {{"3", 2.5}, {"0", 0}}}, data).to_vector(),
            (std::vector<double>{0, 1, 1, 2.5}));
  EXPECT_EQ(class_weights({.balanced = true}, data).to_vector(), balanced_weights(data).to_vector());
  EXPECT_TRUE(test::names(test::message_of([&] {
                            class_weights({.of = {{"cat", 2}}}, data);
                          }),
                          {"--class-weights", "'0'", "'3'", "'cat'"}));
}

// sum_i w_i l_i / N: not divided by the weights, so that the parts that ranks have add up.
TEST(Classifier, WeightsMultiplyTrainingLossesAndLeaveValidationAlone) {
  Perceptron model;
  const Batch batch = test::labelled_batch();
  const std::vector<float> weights{0.5f, 1, 3, 1, 1};
  Classifier task(model, 5, 0.1, Tensor::from(weights, {5}));

  Times total;
  PhaseTimes times(total);
  std::int64_t draws = 0;
  const auto figures = [&](bool training) {
    MetricSums sums(kCpu);
    Step step({.samples = 3}, draws, {.metrics = sums, .times = times});
    const Tensor loss = training ? task.training_step(batch, step) : Tensor();
    if (!training) task.validation_step(batch, step);
    return std::pair(training ? loss.item() : 0, sums.read()[0]);
  };
  const auto each = [&](double smoothing) {
    return cross_entropy(model(batch.images), batch.labels, smoothing, Reduction::none).to_vector();
  };
  const std::vector<double> smoothed = each(0.1), plain = each(0);
  const double want = 3 * smoothed[0] + 0.5 * smoothed[1] + 3 * smoothed[2];
  const auto [loss, logged] = figures(true);
  EXPECT_NEAR(loss, want / 3, 1e-5);
  EXPECT_NEAR(logged, want, 1e-5) << "what is reported is what is trained on";
  EXPECT_NEAR(figures(false).second, plain[0] + plain[1] + plain[2], 1e-5);
}

TEST(Classifier, SampleWeightsMultiplyTrainingLosses) {
  Perceptron model;
  Batch batch = test::labelled_batch();
  batch.fields = std::make_shared<const std::vector<FieldSpec>>(1, FieldSpec{"weight", DType::i64});
  batch.more[0] = Tensor::from(std::vector<std::int64_t>{2, 0, 5}, {3});
  const std::vector<double> each =
      cross_entropy(model(batch.images), batch.labels, 0, Reduction::none).to_vector();
  Times total;
  PhaseTimes times(total);
  std::int64_t draws = 0;
  const auto loss_of = [&](Classifier task) {
    MetricSums sums(kCpu);
    Step step({.samples = 3}, draws, {.metrics = sums, .times = times});
    return task.training_step(batch, step).item();
  };
  EXPECT_NEAR(loss_of(Classifier(model, 5, 0, {}, {.weighs_samples = true})), (2 * each[0] + 5 * each[2]) / 3,
              1e-5);
  EXPECT_NEAR(loss_of(Classifier(model, 5)), (each[0] + each[1] + each[2]) / 3, 1e-5);
  const Tensor several = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2});
  EXPECT_EQ(weighted({.weighs_samples = true}, several, batch).to_vector(),
            (std::vector<double>{2, 4, 0, 0, 25, 30}));
}

TEST(Classifier, BalancedClassesOfOneSizeTrainAsPlainOnes) {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < 60; ++i) {
    labels.push_back(i % 5);
    for (std::int64_t k = 0; k < kSmallSpec.bytes(); ++k)
      pixels.push_back(static_cast<std::uint8_t>(40 * (i % 5) + 7 * k));
  }
  const InMemoryDataset even(kSmallSpec, pixels, labels);
  for (std::int64_t& label : labels) label = label == 1 ? 0 : label;
  const InMemoryDataset odd(kSmallSpec, pixels, labels);
  const auto loss = [&](const InMemoryDataset& data, bool balanced) {
    TrainerConfig config = test::small_config();
    config.epochs = 2;
    config.class_weights.balanced = balanced;
    Perceptron model;
    return Trainer(config).fit(model, data, data).test_loss;
  };
  EXPECT_NEAR(loss(even, true), loss(even, false), 1e-5);
  EXPECT_GT(std::fabs(loss(odd, true) - loss(odd, false)), 1e-4);
}

}  // namespace athanor::classifier_test
