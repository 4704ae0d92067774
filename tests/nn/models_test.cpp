#include <algorithm>

#include "nn/models/cifarnet.h"
#include "nn/models/model.h"
#include "nn/models/resnet.h"
#include "nn/pretrained.h"
#include "nn/torch/torch_layout.h"
#include "nn/whitening.h"
#include "tests/support/errors.h"
#include "tests/support/model_kinds.h"
#include "tests/support/ops.h"

namespace athanor::nn::models_test {

constexpr std::uint64_t kSeed = 7;

struct Small {
  std::string name;
  std::int64_t image_size, batch;
};

// So small that all of them run in seconds: any model at its own size up to 32 pixels, or at 32, except
// these.
Small small(const std::string& name) {
  static const Small kOthers[] = {{"alexnet", 63, 2},
                                  {"vgg11_bn", 32, 2},
                                  {"resnet18_cifar", 16, 2},
                                  {"resnet34_cifar", 16, 2},
                                  {"resnet50_cifar", 16, 2},
                                  {"resnet20", 16, 4},
                                  {"resnet56", 16, 4},
                                  {"mobilenet_v2", 33, 4},
                                  {"mobilenet_v3_large", 33, 4},
                                  {"mobilenet_v3_small", 33, 4},
                                  {"mobilenet_v3_small_075", 33, 4},
                                  {"efficientnet_b0", 33, 4},
                                  {"resnet50d", 33, 2},
                                  {"resnext50_32x4d", 33, 2},
                                  {"regnet_y_400mf", 33, 4},
                                  {"densenet121", 33, 2},
                                  {"convnext_tiny", 32, 2}};
  for (const Small& other : kOthers) {
    if (other.name == name) return other;
  }
  return {name, std::min<std::int64_t>(model_options(name).image_size, 32), 4};
}

std::vector<Small> all_small() {
  std::vector<Small> all;
  for (const std::string& name : test::model_kinds()) {
    if (name != "vit_b_16") all.push_back(small(name));  // a larger vit_tiny
  }
  return all;
}

Tensor images(const Small& small, std::int64_t channels = 3) {
  const Tensor x = Tensor::empty({small.batch, small.image_size, small.image_size, channels});
  init::normal(x, {1, 1}, 0.1, 1);
  return x;
}

std::int64_t channels_of(const std::string& name) {
  return model_options(name).in_channels;
}

class Models : public testing::TestWithParam<Small> {};
INSTANTIATE_TEST_SUITE_P(All, Models, testing::ValuesIn(all_small()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Models, EveryParameterGetsAFiniteGradient) {
  const Small small = GetParam();
  const auto model = make_model(small.name, {5, 0, small.image_size}, kSeed);
  for (const Parameter& parameter : model->parameters()) {
    // A head or a norm's scale that is zero at first passes no gradient on.
    const std::vector<double> values = parameter.tensor.detach().to_vector();
    const bool is_zero = std::ranges::all_of(values, [](double value) { return value == 0; });
    if (is_zero && parameter.name.ends_with("weight")) init::normal(parameter.tensor, {1, 2}, 0, 0.1);
  }
  const Tensor logits = (*model)(images(small, channels_of(small.name)));
  ASSERT_EQ(logits.shape(), (Shape{small.batch, 5}));
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < small.batch; ++i) labels.push_back(i % 5);
  backward(cross_entropy(logits, Tensor::from(labels, {small.batch})));
  for (const Parameter& parameter : model->parameters()) {
    const Tensor gradient = grad_of(parameter.tensor);
    ASSERT_TRUE(gradient.defined()) << parameter.name;
    bool finite = true, moved = false;
    const float* values = gradient.data<float>();
    for (std::int64_t i = 0; i < gradient.numel(); ++i) {
      finite = finite && std::isfinite(values[i]);
      moved = moved || values[i] != 0;
    }
    EXPECT_TRUE(finite) << parameter.name;
    EXPECT_TRUE(moved) << parameter.name;
  }
}

TEST(Models, NamesOfTimmLeadToTheNearest) {
  const std::vector<std::string> names = model_names();
  const std::pair<const char*, const char*> pairs[] = {{"resnet18d", "'resnet18'"},
                                                       {"tf_efficientnet_b0", "'efficientnet_b0'"},
                                                       {"vit_base_patch16_224", "'vit_b_16'"},
                                                       {"convnext_tiny.fb_in1k", "'convnext_tiny'"},
                                                       {"mobilenetv2_100", "'mobilenet_v2'"},
                                                       {"timm/resnet18.a1_in1k", "'resnet18'"},
                                                       {"google/vit-base-patch16-224", "'vit_b_16'"},
                                                       {"deit_tiny_patch16_224", "'vit_tiny'"},
                                                       {"deit_small_patch16_224", "'vit_s_16'"},
                                                       {"resnet50_d", "'resnet50d'"},
                                                       {"resnet50d.ra2_in1k", "'resnet50d'"},
                                                       {"wide_resnet50_2.tv_in1k", "'wide_resnet50_2'"},
                                                       {"tf_efficientnet_b3", "'efficientnet_b3'"},
                                                       {"regnety_016", "'regnet_y_1_6gf'"},
                                                       {"mobilenetv2_140", "'mobilenet_v2_140'"},
                                                       {"mobilenetv3_small_075", "'mobilenet_v3_small_075'"}};
  for (const auto& [theirs, ours] : pairs)
    EXPECT_TRUE(test::names(did_you_mean_model(theirs, names), {ours})) << theirs;
  EXPECT_EQ(did_you_mean_model("resnet200", std::vector<std::string>{"resnet18"}), "");
  EXPECT_EQ(did_you_mean_model("swin_base", names), "");
}

TEST(Models, UnknownNameSuggestsTheNearest) {
  EXPECT_ERROR(ArgumentError, make_model("resnet-18", {}, 0), "resnet-18", "resnet18", "vgg11_bn");
}

TEST(Models, RefusesImagesThatAreTooSmall) {
  EXPECT_ERROR(ArgumentError, make_model("alexnet", {10, 3, 32}, 0), "alexnet", "63", "32");
  EXPECT_THROW(make_model("lenet5", {-1, 0, 0}, 0), ArgumentError);
  EXPECT_ERROR(ArgumentError, make_model("convnext_tiny", {10, 3, 31}, 0), "convnext_tiny", "32", "31");
  EXPECT_ERROR(ArgumentError, make_model("vit_tiny", {10, 3, 40}, 0), "VisionTransformer", "16", "40");
  const auto vit = make_model("vit_tiny", {10, 3, 32}, 0);
  EXPECT_ERROR(ArgumentError, (*vit)(images({"vit_tiny", 48, 1})), "VisionTransformer", "[N, 32, 32, C]",
               "[1, 48, 48, 3]");
}

TEST(Models, ImagesNeedNotBeSquare) {
  for (const std::string name :
       {"lenet5", "alexnet", "vgg11_bn", "resnet20", "digits_cnn", "cifarnet", "vit_tiny"}) {
    const std::int64_t height = small(name).image_size, width = 2 * height;
    const ModelOptions options{.classes = 3, .image_size = height, .image_width = width};
    const auto model = make_model(name, options, kSeed);
    model->eval();
    const Tensor x = Tensor::zeros({1, height, width, model_options(name).in_channels});
    EXPECT_EQ((*model)(x).shape(), Shape({1, 3})) << name;
    EXPECT_EQ(model_options(name, options).image_width, width) << name;
  }
  EXPECT_EQ(model_options("resnet20", {.image_size = 40}).image_width, 40) << "a square";
  EXPECT_ERROR(ArgumentError, make_model("vit_tiny", {.image_size = 32, .image_width = 40}, 1), "16", "40");
  EXPECT_ERROR(ArgumentError, model_options("lenet5", {.image_size = 28, .image_width = 8}), "12", "8");
}

TEST(Models, SmallestImagesRun) {
  for (const auto& [name, side] : {std::pair{"lenet5", 12},
                                   {"cifarnet", 25},
                                   {"digits_cnn", 4},
                                   {"resnet20", 1},
                                   {"mobilenet_v2", 1},
                                   {"mobilenet_v3_small", 1},
                                   {"efficientnet_b0", 1},
                                   {"resnet50d", 1},
                                   {"regnet_y_400mf", 1},
                                   {"densenet121", 29}}) {
    const auto model = make_model(name, {3, 1, side}, kSeed);
    EXPECT_EQ((*model)(images({name, side, 4}, 1)).shape(), (Shape{4, 3})) << name;
    EXPECT_THROW(make_model(name, {3, 1, side - 1 ? side - 1 : -1}, kSeed), ArgumentError) << name;
  }
}

TEST(Models, EvaluationUsesRunningStatisticsAndLeavesThemAlone) {
  for (const char* name : {"resnet20", "cifarnet", "digits_cnn"}) {
    const std::int64_t channels = channels_of(name), side = model_options(name).image_size;
    const auto model = make_model(name, {}, kSeed);
    const Tensor x = images({name, side, 4}, channels);
    model->eval();
    const std::vector<double> fresh = (*model)(x).to_vector();
    EXPECT_EQ((*model)(x).to_vector(), fresh) << name;
    model->train();
    EXPECT_NE((*model)(x).to_vector(), fresh) << name;  // the batch's statistics
    model->eval();
    const std::vector<double> moved = (*model)(x).to_vector();
    EXPECT_NE(moved, fresh) << name;  // training moved the running ones
    EXPECT_EQ((*model)(x).to_vector(), moved) << name;
  }
}

TEST(Models, DropoutActsInTrainingOnly) {
  const auto model = make_model("alexnet", {10, 3, 63}, kSeed);
  const Tensor x = images({"alexnet", 63, 1});
  const std::vector<double> first = (*model)(x).to_vector();
  EXPECT_NE((*model)(x).to_vector(), first);
  model->eval();
  const std::vector<double> evaluated = (*model)(x).to_vector();
  EXPECT_EQ((*model)(x).to_vector(), evaluated);
}

TEST(Models, NamesAreTorchvisions) {
  const StateDict resnet = make_model("resnet50", {}, kSeed)->state_dict();
  for (const char* name : {"conv1.weight", "bn1.weight", "bn1.running_mean", "layer1.0.conv1.weight",
                           "layer1.0.downsample.0.weight", "layer1.0.downsample.1.running_var",
                           "layer3.5.bn3.bias", "layer4.2.conv3.weight", "fc.weight", "fc.bias"})
    EXPECT_TRUE(resnet.contains(name)) << name;
  EXPECT_EQ(resnet.size(), 267u);  // torchvision's 320 less 53 batch counts
  EXPECT_EQ(resnet.tensor("layer1.0.conv2.weight").shape(), (Shape{64, 3, 3, 64}));
  const StateDict alexnet = make_model("alexnet", {}, kSeed)->state_dict();
  EXPECT_EQ(alexnet.names(),
            (std::vector<std::string>{
                "features.0.weight", "features.0.bias", "features.3.weight", "features.3.bias",
                "features.6.weight", "features.6.bias", "features.8.weight", "features.8.bias",
                "features.10.weight", "features.10.bias", "classifier.1.weight", "classifier.1.bias",
                "classifier.4.weight", "classifier.4.bias", "classifier.6.weight", "classifier.6.bias"}));
  const StateDict vgg = make_model("vgg11_bn", {}, kSeed)->state_dict();
  for (const char* name :
       {"features.0.weight", "features.1.running_var", "features.25.bias", "features.26.weight",
        "classifier.0.weight", "classifier.3.bias", "classifier.6.weight"})
    EXPECT_TRUE(vgg.contains(name)) << name;
}

TEST(TorchLayout, PermutesFiltersAndFlattenedColumns) {
  const auto model = make_model("lenet5", {}, kSeed);
  const StateDict ours = model->state_dict();
  const StateDict torch = to_torch_layout(*model, ours);
  EXPECT_EQ(torch.tensor("conv2.weight").shape(), (Shape{16, 6, 5, 5}));
  EXPECT_EQ(torch.tensor("fc1.weight").shape(), (Shape{120, 400}));
  const float* conv_ours = ours.tensor("conv2.weight").data<float>();
  const float* conv_torch = torch.tensor("conv2.weight").data<float>();
  const float* fc_ours = ours.tensor("fc1.weight").data<float>();
  const float* fc_torch = torch.tensor("fc1.weight").data<float>();
  for (std::int64_t k = 0; k < 16; ++k) {
    for (std::int64_t c = 0; c < 6; ++c) {
      for (std::int64_t rs = 0; rs < 25; ++rs)
        ASSERT_EQ(conv_torch[(k * 6 + c) * 25 + rs], conv_ours[(k * 25 + rs) * 6 + c]);
    }
  }
  for (std::int64_t n = 0; n < 120; ++n) {
    for (std::int64_t c = 0; c < 16; ++c) {
      for (std::int64_t hw = 0; hw < 25; ++hw)
        ASSERT_EQ(fc_torch[n * 400 + c * 25 + hw], fc_ours[n * 400 + hw * 16 + c]);
    }
  }
  EXPECT_EQ(torch.tensor("fc2.weight").to_vector(), ours.tensor("fc2.weight").to_vector());
}

TEST(TorchLayout, ThereAndBackIsTheSame) {
  const auto model = make_model("cifarnet", {}, kSeed);
  const StateDict ours = model->state_dict();
  const StateDict torch = to_torch_layout(*model, ours);
  EXPECT_EQ(torch.tensor("group1.bn2.num_batches_tracked").dtype(), DType::i64);
  const StateDict back = from_torch_layout(*model, torch);
  ASSERT_EQ(back.names(), ours.names());
  for (const StateDict::Entry& entry : ours) {
    const Tensor& tensor = std::get<Tensor>(entry.value);
    EXPECT_EQ(back.tensor(entry.name, tensor.shape()).to_vector(), tensor.to_vector()) << entry.name;
  }
}

TEST(TorchLayout, MisfitsAreReportedByLoading) {
  const auto model = make_model("lenet5", {}, kSeed);
  StateDict torch;
  for (const StateDict::Entry& entry : to_torch_layout(*model, model->state_dict()))
    torch.set(entry.name,
              entry.name == "conv1.weight" ? Tensor::zeros({6, 3, 5, 5}) : std::get<Tensor>(entry.value));
  EXPECT_ERROR(ArgumentError, model->load_state_dict(from_torch_layout(*model, torch)), "conv1.weight",
               "[6, 5, 5, 1]", "[6, 3, 5, 5]");
}

TEST(CifarNet, WhiteningIsFrozenAndComesFromImages) {
  CifarNet net(model_options("cifarnet"));
  net.initialize(kSeed);
  const Tensor x = images({"cifarnet", 32, 8});
  net.whiten(x);
  const StateDict state = net.state_dict();
  EXPECT_EQ(state.tensor("whiten.weight").to_vector(), whitening_filters(x).to_vector());
  EXPECT_FALSE(state.tensor("whiten.weight").requires_grad());
  EXPECT_TRUE(state.tensor("whiten.bias").requires_grad());
  EXPECT_THROW(net.whiten(images({"cifarnet", 32, 8}, 1)), ArgumentError);
}

TEST(CifarNet, StartsAsItsRecipeSays) {
  const auto net = make_model("cifarnet", {}, kSeed);
  const StateDict state = net->state_dict();
  const Tensor& conv = state.tensor("group1.conv1.weight");  // [64, 3, 3, 24]
  for (std::int64_t k = 0; k < 24; ++k) EXPECT_EQ(conv.data<float>()[(k * 9 + 4) * 24 + k], 1);
  const std::vector<double> head = state.tensor("head.weight").to_vector();
  double mean = 0, squares = 0;
  for (const double v : head) mean += v / 2560;
  for (const double v : head) squares += (v - mean) * (v - mean);
  EXPECT_NEAR(std::sqrt(squares / 2559), 1, 1e-5);
  EXPECT_FALSE(state.contains("group1.bn1.weight"));  // no scale
  EXPECT_FALSE(state.contains("head.bias"));
}

TEST(Pretrained, TakesAllOrAllButTheHead) {
  const auto weights = make_model("resnet20", {.classes = 10}, 1);
  const auto values = [](const Module& model, const char* name) {
    return model.state_dict().tensor(name).to_vector();
  };
  {
    const auto model = make_model("resnet20", {.classes = 10}, 2);
    const Pretrained taken = load_pretrained(*model, weights->state_dict());
    EXPECT_TRUE(taken.fresh.empty());
    EXPECT_EQ(taken.loaded, std::ssize(weights->state_dict().names()));
    for (const std::string& name : weights->state_dict().names())
      EXPECT_EQ(values(*model, name.c_str()), values(*weights, name.c_str())) << name;
  }
  const auto model = make_model("resnet20", {.classes = 7}, 2),
             before = make_model("resnet20", {.classes = 7}, 2);
  const Pretrained taken = load_pretrained(*model, weights->state_dict());
  EXPECT_EQ(taken.fresh, (std::vector<std::string>{"fc.weight", "fc.bias"}));
  EXPECT_EQ(taken.classes, 10);
  EXPECT_EQ(taken.loaded, std::ssize(weights->state_dict().names()) - 2);
  for (const std::string& name : weights->state_dict().names()) {
    const auto& source = name.starts_with("fc.") ? *before : *weights;
    EXPECT_EQ(values(*model, name.c_str()), values(source, name.c_str())) << name;
  }
}

TEST(Pretrained, TakesPyTorchsLayoutsForWhatTheyAre) {
  for (const char* name : {"lenet5", "resnet20", "mobilenet_v3_small", "vit_tiny"}) {
    const ModelOptions options{.classes = 5, .image_size = 32};
    const auto theirs = make_model(name, options, 1), model = make_model(name, options, 2);
    const StateDict state = theirs->state_dict(), torch = to_torch_layout(*theirs, state);
    EXPECT_TRUE(has_torch_layout(*model, torch)) << name;
    EXPECT_FALSE(has_torch_layout(*model, state)) << name;
    const Pretrained taken = load_pretrained(*model, torch);
    EXPECT_EQ(taken.loaded, std::ssize(state.names())) << name;
    for (const std::string& tensor : state.names())
      EXPECT_EQ(model->state_dict().tensor(tensor).to_vector(), state.tensor(tensor).to_vector()) << tensor;

    const auto other = make_model(name, {.classes = 6, .image_size = 32}, 2);
    EXPECT_EQ(load_pretrained(*other, torch).classes, 5) << name;
  }
}

TEST(Pretrained, RejectsMismatchesAndChangesNothing) {
  const auto model = make_model("resnet20", {.classes = 10}, 1);
  const auto before = model->state_dict().tensor("conv1.weight").to_vector();
  const auto refused = [&](const StateDict& weights, std::initializer_list<std::string_view> named) {
    EXPECT_TRUE(test::names(test::message_of([&] { load_pretrained(*model, weights); }), named));
    EXPECT_EQ(model->state_dict().tensor("conv1.weight").to_vector(), before);
  };
  const auto other = make_model("resnet20", {.classes = 10}, 2);
  StateDict more = other->state_dict(), fewer, half_a_head;
  more.set("extra", Tensor::zeros({1}, {DType::f32, kCpu}));
  refused(more, {"extra"});
  for (const auto& entry : other->state_dict()) {
    if (entry.name != "bn1.weight") fewer.set(entry.name, entry.value);
    half_a_head.set(entry.name,
                    entry.name == "fc.bias" ? Tensor::zeros({7}, {DType::f32, kCpu}) : entry.value);
  }
  refused(fewer, {"bn1.weight"});
  refused(half_a_head, {"fc.bias", "[10]", "[7]"});
  refused(make_model("resnet20", {.classes = 10, .in_channels = 1}, 2)->state_dict(),
          {"conv1.weight", "[16, 3, 3, 3]", "[16, 3, 3, 1]"});
}

}  // namespace athanor::nn::models_test
