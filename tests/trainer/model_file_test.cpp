#include "trainer/inference/model_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "autograd/shape.h"
#include "nn/models/model.h"
#include "tensor/io/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/ranks_run.h"
#include "tests/support/small_training.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/checkpoints/run_folder.h"
#include "trainer/inference/weights_file.h"

// The weights that a run leaves are those it has reported, and their file says how to use them.

namespace athanor::model_file_test {

namespace fs = std::filesystem;

std::vector<double> values_of(const StateDict& weights, const nn::Module& model) {
  std::vector<double> values;
  for (const Parameter& parameter : model.parameters()) {
    const std::vector<double> some = weights.tensor(parameter.name).to_vector();
    values.insert(values.end(), some.begin(), some.end());
  }
  return values;
}

TEST(ModelFile, CountsItsOutputsByTheirKind) {
  const auto counted = [](LabelKind task, std::int64_t outputs) {
    return counted_outputs({.task = task, .images = {1, 1, 1, outputs}});
  };
  EXPECT_EQ(counted(LabelKind::classes, 10), "10 classes");
  EXPECT_EQ(counted(LabelKind::classes, 1), "1 class");
  EXPECT_EQ(counted(LabelKind::multilabel, 3), "3 labels");
  EXPECT_EQ(counted(LabelKind::values, 2), "2 values");
}

class ModelFileTest : public testing::Test {
 protected:
  TrainerConfig config() const {
    TrainerConfig config = test::small_config();
    config.program = "train_small";
    config.run_dir = dir_ / "run";
    return config;
  }
  fs::path model() const { return model_path(dir_ / "run", ""); }
  fs::path last() const { return last_model_path(dir_ / "run", ""); }

  test::TempDir dir_;
};

TEST_F(ModelFileTest, HoldsTheLastWeightsAndTheirDescription) {
  const test::RecordedRun run = test::run(config());
  EXPECT_EQ(run.report.model, model());
  EXPECT_EQ(run.report.last_model, "");
  EXPECT_FALSE(fs::exists(last()));
  const ModelFile file = load_model(model());
  EXPECT_EQ(values_of(file.weights, test::Perceptron()), run.weights);
  EXPECT_EQ(file.info.version, "0.2.0");
  EXPECT_EQ(file.info.program, "train_small");
  EXPECT_EQ(file.info.model, "") << "a network of the program's own";
  EXPECT_TRUE(file.info.classifies);
  EXPECT_EQ(file.info.images, test::kSmallSpec);
  EXPECT_TRUE(file.info.class_names.empty());
  EXPECT_EQ(file.info.precision, Precision::f32);
  EXPECT_EQ(file.info.weights, "last step");
  EXPECT_EQ(file.info.test_loss, run.report.test_loss);
  EXPECT_EQ(file.info.test_accuracy, run.report.test_accuracy);
  EXPECT_EQ(file.info.weights_hash, run.report.weights_hash);
  const Normalization pixels = measure(*synthetic(test::kSmallSpec, 160, 1));
  EXPECT_EQ(file.info.pixels.mean, pixels.mean) << "exact";
  EXPECT_EQ(file.info.pixels.stddev, pixels.stddev);
  // Anybody's reader of safetensors finds the weights under their modules' names.
  EXPECT_TRUE(safetensors::load(model()).contains("hidden.weight"));
}

TEST(Description, OfOtherTasksIsReadBackAndOfClassesIsAsItWas) {
  ModelInfo info{.model = "m", .images = {8, 8, 1, 2}};
  info.pixels = {{0.5}, {0.25}};
  for (const char* name : {"task", "thresholds", "output_mean", "output_scale"})
    EXPECT_FALSE(description(info).contains(name)) << name;
  EXPECT_EQ(described(description(info))->task, LabelKind::classes);

  info.classifies = false;
  info.task = LabelKind::multilabel;
  EXPECT_FALSE(description(info).contains("thresholds")) << "none is one half each";
  EXPECT_EQ(described(description(info))->threshold_of(1), 0.5);
  info.thresholds = {0.1, 1.0 / 3};
  EXPECT_EQ(description(info)["task"], "multilabel");
  EXPECT_EQ(described(description(info))->thresholds, info.thresholds);
  EXPECT_EQ(described(description(info))->threshold_of(1), 1.0 / 3);

  info.task = LabelKind::values;
  info.thresholds = {};
  info.output_mean = {-40.5, 1e6};
  info.output_scale = {1.0 / 3, 12};
  const ModelInfo read = *described(description(info));
  EXPECT_EQ(read.task, LabelKind::values);
  EXPECT_FALSE(read.classifies);
  EXPECT_EQ(read.output_mean, info.output_mean);
  EXPECT_EQ(read.output_scale, info.output_scale);
}

TEST(Description, OfOtherTasksIsChecked) {
  ModelInfo info{.model = "m", .classifies = false, .task = LabelKind::values, .images = {8, 8, 1, 2}};
  info.pixels = {{0.5}, {0.25}};
  const auto refused = [&](const char* name, const char* text) {
    safetensors::Metadata about = description(info);
    about[name] = text;
    return test::message_of([&] { described(about); });
  };
  EXPECT_TRUE(test::names(refused("task", "detection"), {"'task'", "detection", "multilabel"}));
  EXPECT_TRUE(test::names(refused("thresholds", "[0.5]"), {"'thresholds'", "2", "1"}));
  EXPECT_TRUE(test::names(refused("thresholds", "[0.5, 1.5]"), {"'thresholds'", "1.5"}));
  EXPECT_TRUE(test::names(refused("output_mean", "[1, 2]"), {"'output_scale'", "2", "0"}));
  EXPECT_TRUE(test::names(refused("output_scale", "[1, 0]"), {"'output_scale'", "0"}));
  EXPECT_TRUE(test::names(refused("output_mean", "cat"), {"'output_mean'", "cat"}));
}

TEST_F(ModelFileTest, ReplacesTheRemainsOfAKilledRun) {
  for (const char* name : {"run/model.safetensors.17-3.tmp", "run/config.json.17-0.tmp", "run/mine.tmp"})
    test::write_file(dir_ / name, "half");
  test::write_file(model(), "an earlier one");
  (void)test::run(config());
  EXPECT_FALSE(load_model(model()).weights.empty());
  EXPECT_FALSE(fs::exists(dir_ / "run/model.safetensors.17-3.tmp"));
  EXPECT_FALSE(fs::exists(dir_ / "run/config.json.17-0.tmp"));
  EXPECT_TRUE(fs::exists(dir_ / "run/mine.tmp")) << "nobody here has written it";
}

TEST_F(ModelFileTest, HoldsTheReportedWeightsBesideTheLast) {
  TrainerConfig averaged = config(), best = config();
  averaged.ema_decay = 0.9;
  best.epochs = 12;
  best.early_stop = EarlyStop{"val_loss", 2};
  best.schedule = [](double, std::int64_t) { return schedules::constant(2.0); };  // far too much
  best.momentum = 0;
  best.run_dir = dir_ / "best";
  for (const auto& [of, weights] : {std::pair{averaged, "running average"}, {best, "best val_loss"}}) {
    const test::RecordedRun run = test::run(of);
    const auto least = std::min_element(run.epochs.begin(), run.epochs.end(),
                                        [](auto& a, auto& b) { return a.val_loss < b.val_loss; });
    const ModelFile file = load_model(run.report.model), raw = load_model(run.report.last_model);
    EXPECT_EQ(run.report.last_model, last_model_path(of.run_dir, ""));
    EXPECT_EQ(file.info.weights, weights);
    EXPECT_EQ(file.info.weights_hash, run.report.weights_hash);
    EXPECT_EQ(file.info.test_loss, of.early_stop ? least->val_loss : run.report.test_loss);
    EXPECT_EQ(values_of(file.weights, test::Perceptron()), run.weights);
    EXPECT_EQ(raw.info.weights, "last step");
    EXPECT_NE(raw.info.weights_hash, file.info.weights_hash);
    if (of.early_stop) continue;
    TrainerConfig plain = config();
    plain.run_dir.clear();
    EXPECT_EQ(values_of(raw.weights, test::Perceptron()), test::run(plain).weights);
  }
}

TEST_F(ModelFileTest, DoesNotDependOnTheNumberOfRanks) {
  std::vector<std::string> files;
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    TrainerConfig many = test::with(test::ranks_config(), strategy);
    many.precision = Precision::f16;
    many.ema_decay = 0.9;
    many.run_dir = dir_ / std::string(name_of(strategy));
    const auto runs = test::train_ranks(2, many);
    EXPECT_EQ(runs[1].report.model, runs[0].report.model);
    for (const fs::path& path : {runs[0].report.model, runs[0].report.last_model})
      files.push_back(test::read_file(path));
    const ModelFile file = load_model(runs[0].report.model);
    EXPECT_EQ(file.info.precision, Precision::f16);
    EXPECT_EQ(file.weights.tensor("out.weight").dtype(), DType::f32) << "masters";
  }
  EXPECT_EQ(files[0], files[2]) << "zero1's is ddp's";
  EXPECT_EQ(files[1], files[3]);
  EXPECT_NE(files[0], files[1]);
}

TEST_F(ModelFileTest, IsNotWrittenByDivergedOrTrialRuns) {
  TrainerConfig wild = config(), fast = config();
  wild.lr = 1e30;
  wild.max_steps = 1;
  wild.checkpoint_dir = dir_ / "first";
  fast.fast_dev_run = 1;
  EXPECT_EQ(test::run(wild).report.stopped_by, StoppedBy::diverged);
  (void)test::run(fast);
  EXPECT_FALSE(fs::exists(model()));
  (void)test::run(config());
  const std::string before = test::read_file(model());
  wild.checkpoint_dir = dir_ / "others";
  (void)test::run(wild);
  EXPECT_EQ(test::read_file(model()), before) << "the older file stays";
}

ModelInfo info_of_three_classes() {
  ModelInfo info{.program = "p", .model = "lenet5"};
  info.images = {28, 28, 1, 3};
  info.class_names = {"caf\xc3\xa9", "a\nb", "\xff"};
  info.pixels = {{0.1}, {1.0 / 3}};
  info.test_loss = std::nan("");
  return info;
}

TEST_F(ModelFileTest, NamesOfClassesMayBeAnyBytes) {
  const ModelInfo written = info_of_three_classes();
  save_model(dir_ / "x", written, {});
  const ModelInfo info = load_model(dir_ / "x").info;
  EXPECT_EQ(info.class_names, written.class_names);
  EXPECT_EQ(info.pixels.stddev[0], 1.0 / 3);
  EXPECT_TRUE(std::isnan(info.test_loss));
  safetensors::Metadata about = description(written);
  EXPECT_EQ(about.at("class_names"), "[\"caf\xc3\xa9\",\"a%0ab\",\"%ff\"]");
  ModelInfo plain = written;
  plain.class_names = {"caf\xc3\xa9", "100 %", "a\tb"};  // JSON holds all of them as they are
  EXPECT_EQ(description(plain).at("class_names"), "[\"caf\xc3\xa9\",\"100 %\",\"a\\tb\"]");
  EXPECT_EQ(described(description(plain))->class_names, plain.class_names);
}

TEST_F(ModelFileTest, ADescriptionLosesNothing) {
  ModelInfo info = info_of_three_classes();
  info.images = {20, 30, 1, 3};
  info.shorter_side = 37;
  info.precision = Precision::bf16;
  info.batch_size = 64;
  info.ranks = 2;
  info.weights = "best val_loss";
  info.test_accuracy = 0.1 + 0.2;
  info.weights_hash = 0xfedcba9876543210;
  const auto read = described(description(info));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->images, info.images);
  EXPECT_EQ(read->shorter_side, 37);
  EXPECT_EQ(read->precision, info.precision);
  EXPECT_EQ(read->batch_size, 64);
  EXPECT_EQ(read->ranks, 2);
  EXPECT_EQ(read->weights, info.weights);
  EXPECT_EQ(read->test_accuracy, info.test_accuracy);
  EXPECT_EQ(read->weights_hash, info.weights_hash);
  info.shorter_side = 0;  // what readers of other formats would scale to
  EXPECT_EQ(description(info).at("shorter_side"), "30");
  EXPECT_EQ(described(description(info))->shorter_side, 0);
  for (const ImageTransform& transform :
       {ImageTransform{.shorter_side = 300, .interpolation = Resampling::bicubic},
        ImageTransform{.height = 192, .width = 320, .crop_share = 0.875},
        ImageTransform{.mode = ResizeMode::pad, .padding = 0}, ImageTransform{.mode = ResizeMode::squash}}) {
    info.images.height = transform.height;
    info.images.width = transform.width;
    set_resizing(info, transform);
    EXPECT_EQ(resizing(*described(description(info))), transform) << describe(transform);
  }
  for (const auto& [name, value] : {std::pair{"resize", "stretch"},
                                    {"interpolation", "lanczos"},
                                    {"crop_share", "0"},
                                    {"pad_value", "256"}}) {
    safetensors::Metadata wrong = description(info);
    wrong[name] = value;
    EXPECT_ERROR(ArgumentError, described(wrong), name, value);
  }
  EXPECT_FALSE(described({{"format", "pt"}, {"model", "resnet50"}}));
  safetensors::Metadata damaged = description(info);
  damaged["pixel_mean"] = "[0.1";
  EXPECT_ERROR(ArgumentError, described(damaged), "'pixel_mean'", "[0.1");
}

TEST_F(ModelFileTest, CheckpointsDescribeTheirNetwork) {
  TrainerConfig saved = config();
  saved.checkpoint_dir = dir_ / "checkpoints";
  const test::RecordedRun run = test::run(saved);
  const WeightsFile file = read_weights(run.report.checkpoint);
  ASSERT_TRUE(file.info);
  const ModelInfo model = load_model(model_path(dir_ / "run", "")).info;
  EXPECT_EQ(file.info->pixels.mean, model.pixels.mean) << "exact";
  EXPECT_EQ(file.info->pixels.stddev, model.pixels.stddev);
  EXPECT_EQ(file.info->images, model.images);
  EXPECT_EQ(file.info->class_names, model.class_names);
}

TEST_F(ModelFileTest, TheLastLayerIsReadByTheNamesOfClasses) {
  ModelInfo info = info_of_three_classes();
  info.class_names = {"ant", "bee", "cat"};
  const auto saved = nn::make_model("lenet5", {3, 1, 28}, 1);
  save_model(dir_ / "x", info, saved->state_dict());
  const auto head_of = [](const nn::Module& model) { return model.parameters().rbegin()[1].tensor; };
  const auto row = [](const Tensor& head, std::int64_t i) { return narrow(head, 0, i, 1).to_vector(); };

  const auto turned = nn::make_model("lenet5", {3, 1, 28}, 2);
  EXPECT_FALSE(load_weights(dir_ / "x", *turned, {}, {"cat", "ant", "bee"}).other_classes);
  for (const auto& [now, before] : {std::pair{0, 2}, {1, 0}, {2, 1}})
    EXPECT_EQ(row(head_of(*turned), now), row(head_of(*saved), before));
  EXPECT_EQ(turned->parameters()[0].tensor.to_vector(), saved->parameters()[0].tensor.to_vector());

  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"ant", "bee", "dog"}, {"ant", "ant", "bee"}}) {
    const auto other = nn::make_model("lenet5", {3, 1, 28}, 3);
    const std::vector<double> fresh = head_of(*other).to_vector();
    EXPECT_TRUE(load_weights(dir_ / "x", *other, {}, names).other_classes);
    EXPECT_EQ(head_of(*other).to_vector(), fresh);
  }
}

TEST_F(ModelFileTest, WeightsThatNoTrainingLeavesAreRefusedByName) {
  const auto weights = [](const std::string& name, const Tensor& values) {
    StateDict state;
    state.set("fine", Tensor::from(std::vector<float>{-1, 0}, {2}));
    state.set(name, values);
    return state;
  };
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<StateDict> bad = {
      weights("a.weight", Tensor::from(std::vector<float>{0, nan}, {2})),
      weights("a.bias", Tensor::from(std::vector<float>{-inf, 0}, {2})),
      weights("wide", Tensor::from(std::vector<double>{1e300, 0}, {2})),
      weights("bn.running_var", Tensor::from(std::vector<float>{1, -0.25f}, {2})),
      weights("running_var", Tensor::from(std::vector<float>{-1}, {1}))};
  const std::string x = (dir_ / "x").string();
  for (const StateDict& state : bad) {
    const std::string name = "'" + state.names().back() + "'";
    EXPECT_ERROR(ArgumentError, check_values(state), name);
    safetensors::save(x, state, {{"format", "pt"}});
    EXPECT_ERROR(IoError, read_weights(x), x, name);
    save_model(x, info_of_three_classes(), state);
    EXPECT_ERROR(IoError, load_model(x), x, name);
    EXPECT_ERROR(IoError, read_weights(x), x, name);
  }
  EXPECT_NO_THROW(check_values(weights("b.running_mean", Tensor::from(std::vector<float>{-1}, {1}))));
  EXPECT_NO_THROW(check_values(weights("b.running_var", Tensor::from(std::vector<float>{0}, {1}))));
}

TEST_F(ModelFileTest, FilesThatAreNoModelAreNamed) {
  const std::string x = (dir_ / "x.bin").string();
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"\xff\xd8\xff\xe0\x10JFIF", "JPEG"},
      {"\x89PNG\r\n\x1a\n", "PNG"},
      {"GIF89a", "GIF"},
      {"RIFF1234WEBPVP8 ", "WebP"},
      {"\x89HDF\r\n\x1a\n", "HDF5"},
      {"\x1f\x8b\x08", "gzip"},
      {"\x93NUMPY", "NumPy"},
      {"\x08\x08\x12\x07"
       "athanor",
       "ONNX"},
      {"\n<!DOCTYPE html>", "web page"},
      {"version https://git-lfs.github.com/spec/v1\n", "Git LFS"},
      {"404: Not Found", "text"},
      {"", "empty"}};
  for (const auto& [bytes, kind] : kinds) {
    test::write_file(x, bytes);
    EXPECT_ERROR(IoError, read_weights(x), x, kind);
    EXPECT_ERROR(IoError, load_model(x), "model", x, kind);
  }
}

TEST_F(ModelFileTest, OtherFilesAreRejectedInOneLine) {
  StateDict state;
  state.set("w", Tensor::zeros({2}));
  const std::string x = (dir_ / "x").string();
  EXPECT_ERROR(IoError, load_model(x), x, std::strerror(ENOENT));
  save_checkpoint(x, state);
  EXPECT_ERROR(IoError, load_model(x), "model", x, "checkpoint", "athanor convert");
  safetensors::save(x, state);
  EXPECT_ERROR(IoError, load_model(x), "model", x, "athanor convert", "--model");
  test::write_file(x, "PK\x03\x04 of torch.save()");
  EXPECT_ERROR(IoError, load_model(x), "model", x, "athanor convert", "--model");
  save_state_file(x, StateFile::model, state);
  EXPECT_ERROR(IoError, load_model(x), "model", x, "older version");
  const auto saved = [&](const auto& damage) {
    ModelInfo info = info_of_three_classes();
    damage(info);
    save_model(x, info, state);
    return test::message_of<IoError>([&] { (void)load_model(x); });
  };
  EXPECT_TRUE(test::names(saved([](ModelInfo& info) { info.pixels.mean.clear(); }), {"model", x, "1", "0"}));
  EXPECT_TRUE(
      test::names(saved([](ModelInfo& info) { info.class_names.pop_back(); }), {"model", x, "3", "2"}));
  EXPECT_TRUE(test::names(saved([](ModelInfo& info) { info.images.height = INT64_MAX; }),
                          {"model", x, "65536", fmt::format("{}x28x1", INT64_MAX)}));
  EXPECT_TRUE(test::names(saved([](ModelInfo& info) { info.ranks = 0; }), {"model", x, "'ranks'", "0"}));
}

TEST_F(ModelFileTest, AnyWrongByteIsDetected) {
  (void)test::run(config());
  const std::string whole = test::read_file(model());
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    const std::size_t at = i < 8 ? static_cast<std::size_t>(i) : random() % whole.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    test::write_file(dir_ / "damaged", damaged);
    EXPECT_THROW((void)load_model(dir_ / "damaged"), IoError) << "byte " << at;
    test::write_file(dir_ / "damaged", whole.substr(0, at));
    EXPECT_THROW((void)load_model(dir_ / "damaged"), IoError) << "of " << at << " bytes";
  }
}

}  // namespace athanor::model_file_test
