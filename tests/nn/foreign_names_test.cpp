#include "nn/torch/foreign_names.h"

#include "nn/models/model.h"
#include "nn/pretrained.h"
#include "nn/torch/torch_layout.h"
#include "tests/support/ops.h"

namespace athanor::foreign_names_test {

/// A state with these names, in the order given, each a tensor of one element.
StateDict named(const std::vector<std::string>& names) {
  StateDict state;
  for (const std::string& name : names) state.set(name, Tensor::zeros({1}));
  return state;
}

std::vector<std::string> renamed(const char* model, const std::vector<std::string>& names) {
  return nn::with_our_names(*nn::make_model(model, {}, 0), named(names)).names();
}

using Names = std::vector<std::string>;

TEST(ForeignNames, OfBlocksAreCountedThroughStages) {
  // A block without a wider part, one with it, and the second stage's first.
  const Names theirs = {"conv_stem.weight",
                        "bn1.running_mean",
                        "blocks.0.0.conv_dw.weight",
                        "blocks.0.0.bn1.weight",
                        "blocks.0.0.conv_pw.weight",
                        "blocks.0.0.bn2.bias",
                        "blocks.1.0.conv_pw.weight",
                        "blocks.1.0.bn2.weight",
                        "blocks.1.0.conv_pwl.weight",
                        "blocks.1.0.bn3.weight",
                        "blocks.1.1.conv_pw.weight",
                        "blocks.1.1.conv_pwl.weight",
                        "conv_head.weight",
                        "bn2.weight",
                        "classifier.bias"};
  EXPECT_EQ(renamed("mobilenet_v2", theirs),
            (Names{"features.0.0.weight", "features.0.1.running_mean", "features.1.conv.0.0.weight",
                   "features.1.conv.0.1.weight", "features.1.conv.1.weight", "features.1.conv.2.bias",
                   "features.2.conv.0.0.weight", "features.2.conv.1.1.weight", "features.2.conv.2.weight",
                   "features.2.conv.3.weight", "features.3.conv.0.0.weight", "features.3.conv.2.weight",
                   "features.4.0.weight", "features.4.1.weight", "classifier.1.bias"}));
  EXPECT_EQ(
      renamed("efficientnet_b0", {"conv_stem.weight", "blocks.0.0.conv_dw.weight",
                                  "blocks.0.0.se.conv_reduce.weight", "blocks.0.0.conv_pw.weight",
                                  "blocks.1.1.conv_pwl.weight", "blocks.1.1.bn3.weight", "conv_head.weight"}),
      (Names{"features.0.0.weight", "features.1.0.block.0.0.weight", "features.1.0.block.1.fc1.weight",
             "features.1.0.block.2.0.weight", "features.2.1.block.2.0.weight",
             "features.2.1.block.2.1.weight", "features.3.0.weight"}));
  EXPECT_EQ(renamed("mobilenet_v3_small",
                    {"conv_stem.weight", "blocks.0.0.conv_dw.weight", "blocks.0.0.conv_pw.weight",
                     "blocks.1.0.conv.weight", "blocks.1.0.bn1.weight", "conv_head.bias", "classifier.bias"}),
            (Names{"features.0.0.weight", "features.1.block.0.0.weight", "features.1.block.1.0.weight",
                   "features.2.0.weight", "features.2.1.weight", "classifier.0.bias", "classifier.3.bias"}));
}

TEST(ForeignNames, OfTransformersAndConvNeXtAreKnown) {
  // By their own names: any model will do, and this one is small.
  EXPECT_EQ(renamed("lenet5", {"stages.0.blocks.0.conv_dw.weight", "stem.1.bias",
                               "stages.2.downsample.1.weight", "stages.2.blocks.8.gamma", "head.fc.bias"}),
            (Names{"features.1.0.block.0.weight", "features.0.1.bias", "features.4.1.weight",
                   "features.5.8.layer_scale", "classifier.2.bias"}));
  EXPECT_EQ(
      renamed("lenet5", {"cls_token", "patch_embed.proj.weight", "blocks.11.attn.qkv.bias",
                         "blocks.0.mlp.fc2.weight", "norm.weight", "head.bias", "other.thing"}),
      (Names{"class_token", "conv_proj.weight", "encoder.layers.encoder_layer_11.self_attention.in_proj_bias",
             "encoder.layers.encoder_layer_0.mlp.3.weight", "encoder.ln.weight", "heads.head.bias",
             "other.thing"}));
}

TEST(ForeignNames, OfRegNetAndDenseNetAreKnown) {
  EXPECT_EQ(
      renamed("lenet5", {"stem.conv.weight", "stem.bn.bias", "s1.b1.conv1.conv.weight",
                         "s1.b1.downsample.bn.weight", "s4.b12.conv2.bn.bias", "s4.b12.se.fc1.weight",
                         "s2.b1.downsample.conv.weight", "s3.b2.conv3.conv.weight", "head.fc.bias"}),
      (Names{"stem.0.weight", "stem.1.bias", "trunk_output.block1.block1-0.f.a.0.weight",
             "trunk_output.block1.block1-0.proj.1.weight", "trunk_output.block4.block4-11.f.b.1.bias",
             "trunk_output.block4.block4-11.f.se.fc1.weight", "trunk_output.block2.block2-0.proj.0.weight",
             "trunk_output.block3.block3-1.f.c.0.weight", "fc.bias"}));
  EXPECT_EQ(renamed("lenet5", {"features.conv0.weight", "features.denseblock1.denselayer1.norm.1.weight",
                               "features.denseblock4.denselayer16.conv.2.weight",
                               "features.denseblock4.denselayer16.norm.2.running_var",
                               "features.transition1.norm.weight", "classifier.weight"}),
            (Names{"features.conv0.weight", "features.denseblock1.denselayer1.norm1.weight",
                   "features.denseblock4.denselayer16.conv2.weight",
                   "features.denseblock4.denselayer16.norm2.running_var", "features.transition1.norm.weight",
                   "classifier.weight"}));
}

TEST(ForeignNames, ShapesFollowWhereALinearLayerWasAConvolution) {
  const auto model = nn::make_model("mobilenet_v3_small", {}, 0);
  StateDict state = named({"conv_stem.weight"});
  state.set("conv_head.weight", Tensor::zeros({1024, 576, 1, 1}));
  const StateDict ours = nn::with_our_names(*model, state);
  EXPECT_EQ(ours.tensor("classifier.0.weight").shape(), (Shape{1024, 576}));
}

TEST(ForeignNames, PrefixesOfAllGo) {
  EXPECT_EQ(renamed("lenet5", {"module.a", "module.b.c"}), (Names{"a", "b.c"}));
  EXPECT_EQ(renamed("lenet5", {"module._orig_mod.a"}), Names{"a"});
  EXPECT_EQ(renamed("lenet5", {"model.module.a"}), Names{"a"});
  EXPECT_EQ(renamed("lenet5", {"module.a", "b"}), (Names{"module.a", "b"}));
  EXPECT_EQ(renamed("lenet5", {"_orig_mod.module.net.a", "_orig_mod.module.net.b.c"}), (Names{"a", "b.c"}));
  EXPECT_EQ(renamed("lenet5", {"n_averaged", "module.a", "module.b"}), (Names{"a", "b"}));
  EXPECT_EQ(renamed("lenet5", {"conv1.weight"}), Names{"conv1.weight"}) << "one of the model's own";
  EXPECT_EQ(renamed("lenet5", {"a"}), Names{"a"});
}

TEST(ForeignNames, ANetworkIsFoundWithinALargerModule) {
  const auto model = nn::make_model("lenet5", {}, 0);
  const std::string first = model->parameters().front().name;
  const auto within = [&](const Names& names, bool averages, Names parts, bool averaged) {
    WeightParts found;
    const StateDict state = nn::network_within(*model, named(names), averages, found);
    EXPECT_EQ(found.names, parts);
    EXPECT_EQ(found.averaged, averaged);
    return state.names();
  };
  // A LightningModule with a loss, and a running average of its network.
  const Names lightning = {"criterion.weight", "scale",          "net." + first,        "net.x",
                           "net.y." + first,   "ema.n_averaged", "ema.module." + first, "ema.module.x",
                           "criterion.bias"};
  EXPECT_EQ(within(lightning, true, {"ema.module", "net", "criterion", "scale"}, true), (Names{first, "x"}));
  EXPECT_EQ(within(lightning, false, {"net", "ema.module", "criterion", "scale"}, false),
            (Names{first, "x", "y." + first}));
  EXPECT_EQ(within({"b." + first, "a." + first}, true, {"b", "a"}, false), Names{first});
  EXPECT_EQ(within({"loss", "model.conv_stem.weight"}, true, {"model", "loss"}, false),
            Names{"conv_stem.weight"})
      << "a network of timm's";
  EXPECT_EQ(within({"ema." + first}, false, {}, true), Names{first}) << "there is no other";
  // The network itself, what is no network, and what nobody would write.
  for (const Names& names :
       {Names{first, "a." + first, "b"}, {"a.b", "c"}, {"x" + first}, {"."}, {"a.", ".."}})
    EXPECT_EQ(within(names, true, {}, false), names);
  const std::string dots(100, '.');
  EXPECT_EQ(within({dots + first, "a"}, true, {}, false).size(), 2u);
}

TEST(Pretrained, TakesTheAverageUnlessToldOtherwise) {
  const auto plain = nn::make_model("lenet5", {}, 1), average = nn::make_model("lenet5", {}, 2),
             ours = nn::make_model("lenet5", {}, 3);
  StateDict state;
  state.set_all("net.", nn::to_torch_layout(*plain, plain->state_dict()));
  state.set("ema.n_averaged", Tensor::zeros({1}));
  state.set_all("ema.module.", nn::to_torch_layout(*average, average->state_dict()));
  state.set("loss.weight", Tensor::zeros({10}));
  const std::string first = ours->parameters().front().name;
  const auto values = [&](const nn::Module& model) {
    return model.state_dict().tensor(first).detach().to_vector();
  };
  const nn::Pretrained taken = nn::load_pretrained(*ours, state);
  EXPECT_EQ(values(*ours), values(*average));
  EXPECT_EQ(taken.parts, (Names{"ema.module", "net", "loss"}));
  EXPECT_TRUE(taken.averaged);
  EXPECT_FALSE(nn::load_pretrained(*ours, state, {.averages = false}).averaged);
  EXPECT_EQ(values(*ours), values(*plain));
}

TEST(ForeignNames, StrangeNamesPassThrough) {
  const Names strange = {"conv_stem.weight", "blocks.0.0.conv_pwl.weight", "blocks.0.0", "blocks.0.0.",
                         "blocks..1.x",      "blocks.99999.1.bn1",         "blocks.",    "conv_stemweight",
                         "blocks.0.0.se"};
  const Names names = renamed("mobilenet_v2", strange);
  EXPECT_EQ(names.size(), strange.size());
  for (std::size_t i = 2; i < strange.size(); ++i) EXPECT_EQ(names[i], strange[i]);
}

TEST(Pretrained, AResetHeadKeepsItsOwnValues) {
  for (const bool torch : {false, true}) {
    const auto theirs = nn::make_model("lenet5", {}, 1), ours = nn::make_model("lenet5", {}, 2);
    const StateDict state = torch ? nn::to_torch_layout(*theirs, theirs->state_dict()) : theirs->state_dict();
    const auto values = [](const nn::Module& model, const std::string& name) {
      return model.state_dict().tensor(name).detach().to_vector();
    };
    const std::string head = ours->parameters().back().name, first = ours->parameters().front().name;
    const std::vector<double> fresh = values(*ours, head);
    const nn::Pretrained taken = nn::load_pretrained(*ours, state, {.reset_head = true});
    EXPECT_EQ(taken.fresh.size(), 2u);
    EXPECT_EQ(taken.classes, 10);
    EXPECT_EQ(values(*ours, head), fresh);
    EXPECT_NE(values(*ours, head), values(*theirs, head));
    EXPECT_EQ(values(*ours, first), values(*theirs, first));
    EXPECT_TRUE(nn::load_pretrained(*ours, state).fresh.empty());
    EXPECT_EQ(values(*ours, head), values(*theirs, head));
  }
}

TEST(Pretrained, AResetHeadNeedsNoneInTheFile) {
  const auto theirs = nn::make_model("lenet5", {}, 1), ours = nn::make_model("lenet5", {}, 2);
  const std::string head = ours->parameters().back().name;
  StateDict state;
  for (const StateDict::Entry& entry : theirs->state_dict()) {
    if (!entry.name.starts_with(head.substr(0, head.rfind('.')))) state.set(entry.name, entry.value);
  }
  EXPECT_EQ(nn::load_pretrained(*ours, state, {.reset_head = true}).fresh.size(), 2u);
  EXPECT_ERROR(ArgumentError, nn::load_pretrained(*ours, state), head);
}

}  // namespace athanor::foreign_names_test
