#include "trainer/profile/layers.h"

#include <cstdio>

#include <gtest/gtest.h>

#include "autograd/creation.h"
#include "nn/models/model.h"
#include "tests/support/small_tasks.h"
#include "tests/support/written.h"
#include "trainer/loggers/progress.h"

// --summary: layers, their shapes and costs.

namespace athanor::layers_test {

struct Totals {
  std::int64_t parameters = 0, flops = 0, activation_bytes = 0;
};

Totals totals_of(const std::vector<Layer>& layers) {
  Totals all;
  for (const Layer& layer : layers) {
    all.parameters += layer.parameters;
    all.flops += layer.flops;
    all.activation_bytes += layer.activation_bytes;
  }
  return all;
}

std::vector<Layer> layers_of(const char* name) {
  const auto model = nn::make_model(name, {}, 0);
  model->eval();
  const nn::ModelOptions size = nn::model_options(name);
  const Tensor image = Tensor::zeros({1, size.image_size, size.image_size, size.in_channels});
  const std::vector<Layer> layers = trace_layers(*model, [&] { (*model)(image); });
  EXPECT_EQ(totals_of(layers).parameters, model->parameter_count()) << name;
  return layers;
}

// Multiply-adds that torchvision publishes with its weights (10^9, three digits).
void expect_cost(const std::vector<Layer>& layers, double giga) {
  EXPECT_NEAR(static_cast<double>(totals_of(layers).flops) / 2e9, giga, 0.0006);
}

TEST(Layers, CostsMatchTorchvision) {
  expect_cost(layers_of("mobilenet_v2"), 0.301);
  const std::vector<Layer> layers = layers_of("resnet18");
  expect_cost(layers, 1.814);
  const Layer& first = layers.at(0);
  EXPECT_EQ(first.name, "conv1");
  EXPECT_EQ(first.op, "conv2d");
  EXPECT_EQ(first.output, (Shape{1, 112, 112, 64}));
  EXPECT_EQ(first.parameters, 7 * 7 * 3 * 64);
  EXPECT_EQ(first.flops, 2LL * 112 * 112 * 64 * 7 * 7 * 3);
  EXPECT_EQ(first.activation_bytes, 4LL * 112 * 112 * 64);
  const Layer& last = layers.back();
  EXPECT_EQ(last.name, "fc");
  EXPECT_EQ(last.parameters, 512 * 1000 + 1000);
}

TEST(Layers, OnesMatchTorchvisionCosts) {
  for (const auto& [name, giga] :
       {std::pair{"resnet50", 4.089}, {"vit_b_16", 17.564}, {"convnext_tiny", 4.456}})
    expect_cost(layers_of(name), giga);
}

/// What Progress prints of a run.
std::string shown(Task& task, const TrainerConfig& config) {
  return test::printed([&](std::FILE* out) {
    Trainer trainer(config);
    trainer.add(std::make_unique<Progress>(out, false));
    (void)trainer.fit(task, *synthetic(test::kSmallSpec, 160, 1), *synthetic(test::kSmallSpec, 50, 2));
  });
}

TEST(Summary, ShowsTheNetworksOfATaskAndTrainsTheSame) {
  TrainerConfig config = test::small_config();
  test::Autoencoder plain, summed;
  const test::RecordedRun expected = test::train(plain, config);
  EXPECT_EQ(shown(summed, config).find("activations"), std::string::npos);
  config.summary = true;
  test::Autoencoder task;
  const std::string text = shown(task, config);
  EXPECT_EQ(text.find("affine"), std::string::npos) << "a score is no layer:\n" << text;
  for (const char* part : {"encoder  linear", "1x6 ", "decoder  linear", "1x16 ", "102 ", "112 ", "total"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_NE(text.find(" 384  "), std::string::npos) << "2 * (16 * 6 + 6 * 16) FLOPs in\n" << text;
  EXPECT_EQ(test::weights_of(task.networks()), expected.weights);
  EXPECT_EQ(test::weights_of(summed.networks()), expected.weights);
}

// Of a task that measures nothing, the layers of its training; of one that cannot be called, the total.
TEST(Summary, TakesTheTrainingStepWhereValidationCallsNothing) {
  struct Unvalidated : test::Autoencoder {
    void validation_step(const Batch&, Step&) override {}
  } unvalidated;
  TrainerConfig config = test::small_config();
  config.summary = true;
  EXPECT_NE(shown(unvalidated, config).find("decoder  linear"), std::string::npos);
  struct Shy : test::Autoencoder {
    void validation_step(const Batch& batch, Step& step) override {
      if (batch.size() == 1) detail::fail<>("not one by one");
      Autoencoder::validation_step(batch, step);
    }
    Tensor training_step(const Batch& batch, Step& step) override {
      if (batch.size() == 1) detail::fail<>("not one by one");
      return Autoencoder::training_step(batch, step);
    }
  } shy;
  const std::string text = shown(shy, config);
  EXPECT_EQ(text.find("decoder  linear"), std::string::npos);
  EXPECT_NE(text.find("total"), std::string::npos);
}

}  // namespace athanor::layers_test
