#include "trainer/inference/model_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "tensor/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/ranks_run.h"
#include "tests/support/small_training.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/checkpoints/run_folder.h"

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

TEST_F(ModelFileTest, OfAnAverageHoldsTheValidatedWeights) {
  TrainerConfig averaged = config();
  averaged.ema_decay = 0.9;
  const test::RecordedRun run = test::run(averaged);
  const ModelFile file = load_model(model()), raw = load_model(last());
  EXPECT_EQ(run.report.last_model, last());
  EXPECT_EQ(file.info.weights, "running average");
  EXPECT_EQ(raw.info.weights, "last step");
  EXPECT_EQ(values_of(file.weights, test::Perceptron()), run.weights);
  TrainerConfig plain = config();
  plain.run_dir.clear();
  EXPECT_EQ(values_of(raw.weights, test::Perceptron()), test::run(plain).weights);
}

TEST_F(ModelFileTest, OfEarlyStoppingHoldsTheBestWeights) {
  TrainerConfig early = config();
  early.epochs = 12;
  early.early_stop = EarlyStop{"val_loss", 2};
  early.schedule = [](double, std::int64_t) { return schedules::constant(2.0); };  // far too much
  early.momentum = 0;
  const test::RecordedRun run = test::run(early);
  const auto best = std::min_element(run.epochs.begin(), run.epochs.end(),
                                     [](auto& a, auto& b) { return a.val_loss < b.val_loss; });
  const ModelFile file = load_model(model());
  EXPECT_EQ(file.info.weights, "best val_loss");
  EXPECT_EQ(file.info.weights_hash, best->weights_hash);
  EXPECT_EQ(file.info.test_loss, best->val_loss);
  EXPECT_EQ(load_model(last()).info.weights_hash, run.epochs.back().weights_hash);
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
  TrainerConfig wild = config();
  wild.lr = 1e30;
  wild.max_steps = 1;
  EXPECT_EQ(test::run(wild).report.stopped_by, StoppedBy::diverged);
  TrainerConfig fast = config();
  fast.fast_dev_run = 1;
  (void)test::run(fast);
  EXPECT_FALSE(fs::exists(model()));
}

TEST_F(ModelFileTest, AFailedTrainingKeepsTheOlderFile) {
  (void)test::run(config());
  const std::string before = test::read_file(model());
  TrainerConfig wild = config();
  wild.checkpoint_dir = dir_ / "others";
  wild.lr = 1e30;
  wild.max_steps = 1;
  (void)test::run(wild);
  EXPECT_EQ(test::read_file(model()), before);
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
  save_state_file(dir_ / "x", StateFile::model, model_state(info_of_three_classes(), {}));
  const ModelInfo info = load_model(dir_ / "x").info;
  EXPECT_EQ(info.class_names, (std::vector<std::string>{"caf\xc3\xa9", "a\\nb", "\\xff"}));
  EXPECT_EQ(info.pixels.stddev[0], 1.0 / 3);
  EXPECT_TRUE(std::isnan(info.test_loss));
}

TEST_F(ModelFileTest, OtherFilesAreRejectedInOneLine) {
  StateDict state;
  state.set("w", Tensor::zeros({2}));
  const std::string x = (dir_ / "x").string();
  EXPECT_ERROR(IoError, load_model(x), x, std::strerror(ENOENT));
  save_checkpoint(x, state);
  EXPECT_ERROR(IoError, load_model(x), "model", x, "checkpoint");
  safetensors::save(x, state);
  EXPECT_ERROR(IoError, load_model(x), "model", x);
  save_state_file(x, StateFile::model, state);
  EXPECT_ERROR(IoError, load_model(x), "model", x, "'version'");
  ModelInfo info = info_of_three_classes();
  info.pixels.mean.clear();
  save_state_file(x, StateFile::model, model_state(info, state));
  EXPECT_ERROR(IoError, load_model(x), "model", x, "1", "0");
  info = info_of_three_classes();
  info.class_names.pop_back();
  save_state_file(x, StateFile::model, model_state(info, state));
  EXPECT_ERROR(IoError, load_model(x), "model", x, "3", "2");
  info = info_of_three_classes();
  info.images.height = INT64_MAX;
  save_state_file(x, StateFile::model, model_state(info, state));
  EXPECT_ERROR(IoError, load_model(x), "model", x, "65536",
               fmt::format("{}x{}x{}", INT64_MAX, info.images.width, info.images.channels));
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
