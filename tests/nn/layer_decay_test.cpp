#include "nn/layer_decay.h"

#include <cmath>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "nn/models/model.h"
#include "tests/support/errors.h"

namespace athanor::nn::layer_decay_test {

std::map<std::string, float> scales(const char* name, double decay) {
  const auto model = make_model(name, {10, 3, 32});
  set_layer_decay(*model, decay);
  std::map<std::string, float> all;
  for (const Parameter& one : model->parameters()) all[one.name] = one.lr_scale;
  return all;
}

void expect_power(const std::map<std::string, float>& all, const char* name, int power) {
  EXPECT_FLOAT_EQ(all.at(name), static_cast<float>(std::pow(0.5, power))) << name;
}

// Twelve blocks: what is before them is layer 0, the head layer 13, as timm counts them.
TEST(LayerDecay, OfATransformerFallsFromTheHeadToThePatches) {
  const auto all = scales("vit_tiny", 0.5);
  expect_power(all, "heads.head.weight", 0);
  expect_power(all, "encoder.ln.bias", 0);
  expect_power(all, "encoder.layers.encoder_layer_11.mlp.0.weight", 1);
  expect_power(all, "encoder.layers.encoder_layer_0.ln_1.weight", 12);
  expect_power(all, "conv_proj.weight", 13);
  expect_power(all, "class_token", 13);
  expect_power(all, "encoder.pos_embedding", 13);
}

TEST(LayerDecay, OfAResNetCountsItsBlocks) {
  const auto all = scales("resnet18", 0.5);
  expect_power(all, "fc.bias", 0);
  expect_power(all, "layer4.1.conv2.weight", 1);
  expect_power(all, "layer4.0.downsample.0.weight", 2);
  expect_power(all, "layer1.0.bn1.weight", 8);
  expect_power(all, "conv1.weight", 9);
}

// A transition is no block: it goes with the layers before it.
TEST(LayerDecay, BetweenBlocksIsThatOfTheEarlierOne) {
  const auto all = scales("densenet121", 0.5);
  EXPECT_EQ(all.at("features.transition1.conv.weight"),
            all.at("features.denseblock1.denselayer6.conv2.weight"));
  EXPECT_FLOAT_EQ(all.at("features.denseblock2.denselayer1.conv1.weight"),
                  2 * all.at("features.transition1.conv.weight"));
}

TEST(LayerDecay, NeedsBlocksAndAShare) {
  EXPECT_ERROR(ArgumentError, scales("lenet5", 0.5), "blocks");
  EXPECT_ERROR(ArgumentError, scales("resnet18", 0), "(0, 1]", "0");
  EXPECT_ERROR(ArgumentError, scales("resnet18", 1.5), "(0, 1]", "1.5");
}

}  // namespace athanor::nn::layer_decay_test
