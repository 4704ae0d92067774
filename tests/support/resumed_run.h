#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/shape.h"
#include "data/synthetic.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "tests/support/errors.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temp_dir.h"

// A training small enough to be done again from each of its steps, with everything in it that remembers:
// momentum, batch norm, dropout, augmentation, accumulation with a shorter last step, early stopping.

namespace athanor::test {

inline constexpr ImageSpec kResumeSpec{4, 4, 1, 5};

class ResumeNet final : public nn::Module {
 public:
  explicit ResumeNet(std::int64_t width = 6) : width_(width), out(16 * width, 5) {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("dropout", dropout);
    register_module("out", out);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override {
    if (on_forward) on_forward(training());
    return out(dropout(flatten(norm(conv(x)))));
  }

 private:
  std::int64_t width_;

 public:
  nn::Conv2d conv{1, width_, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm norm{width_, {.activation = Activation::relu}};
  nn::Dropout dropout{0.3f};
  nn::Linear out;
  std::function<void(bool training)> on_forward;
};

/// 9 batches of 8 an epoch, two a step: five steps, the last of one batch.
inline TrainerConfig resume_config() {
  TrainerConfig config;
  config.epochs = 2;
  config.batch_size = 8;
  config.accumulate = 2;
  config.lr = 0.2;
  config.threads = 1;
  config.deterministic = true;
  config.augment = {.pad = 1, .flip = true};
  config.early_stop = EarlyStop{"val_loss", 3};
  return config;
}

inline RecordedRun train(const TrainerConfig& config, ResumeNet& model, const OnStep& on_step = {},
                         std::vector<std::unique_ptr<Callback>> more = {}) {
  Trainer trainer(config);
  for (auto& callback : more) trainer.add(std::move(callback));
  return record(trainer, model, *synthetic(kResumeSpec, 75, 1), *synthetic(kResumeSpec, 30, 2), on_step);
}

inline RecordedRun train(const TrainerConfig& config, const OnStep& on_step = {}) {
  ResumeNet model;
  return train(config, model, on_step);
}

/// Equal, or both not measured.
inline void expect_same(double a, double b, const char* what, std::int64_t number) {
  EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b)))
      << what << ' ' << number << ": " << a << " and " << b;
}

/// All that must be the same, bit for bit, in a run that went on and in one that never stopped.
inline void expect_same_end(const RecordedRun& resumed, const RecordedRun& straight) {
  EXPECT_EQ(resumed.report.weights_hash, straight.report.weights_hash);
  EXPECT_EQ(resumed.weights, straight.weights);
  expect_same(resumed.report.test_loss, straight.report.test_loss, "test_loss after epoch",
              resumed.report.epochs);
  expect_same(resumed.report.test_accuracy, straight.report.test_accuracy, "test_accuracy after epoch",
              resumed.report.epochs);
  EXPECT_EQ(resumed.report.steps.applied, straight.report.steps.applied);
  EXPECT_EQ(resumed.report.steps.skipped(), straight.report.steps.skipped());
  EXPECT_EQ(resumed.report.epochs, straight.report.epochs);
  EXPECT_EQ(resumed.report.stopped_by, straight.report.stopped_by);
  // Every epoch it reports, from the one it went on in, is the other's.
  ASSERT_LE(resumed.epochs.size(), straight.epochs.size());
  const std::size_t skipped = straight.epochs.size() - resumed.epochs.size();
  for (std::size_t i = 0; i < resumed.epochs.size(); ++i) {
    const EpochReport &a = resumed.epochs[i], &b = straight.epochs[skipped + i];
    EXPECT_EQ(a.epoch, b.epoch);
    expect_same(a.train_loss, b.train_loss, "train_loss", a.epoch);
    expect_same(a.train_accuracy, b.train_accuracy, "train_accuracy", a.epoch);
    expect_same(a.val_loss, b.val_loss, "val_loss", a.epoch);
    expect_same(a.val_accuracy, b.val_accuracy, "val_accuracy", a.epoch);
    EXPECT_EQ(a.learning_rate, b.learning_rate) << a.epoch;
    EXPECT_EQ(a.loss_scale, b.loss_scale) << a.epoch;
    EXPECT_EQ(a.steps.applied, b.steps.applied) << a.epoch;
    EXPECT_EQ(a.weights_hash, b.weights_hash) << a.epoch;
  }
  for (std::size_t i = 0; i < resumed.steps.size(); ++i) {
    const StepInfo &a = resumed.steps[i],
                   &b = straight.steps[straight.steps.size() - resumed.steps.size() + i];
    EXPECT_EQ(a.epoch, b.epoch);
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.attempted, b.attempted);
    EXPECT_EQ(a.samples, b.samples);
  }
}

/// A folder for checkpoints, and runs that save in it.
class ResumeTest : public testing::Test {
 protected:
  std::filesystem::path folder() const { return dir_ / "checkpoints"; }
  std::filesystem::path file(std::int64_t step) const {
    return folder() / fmt::format("step-{:08}.safetensors", step);
  }
  std::size_t files() const {
    std::size_t count = 0;
    std::error_code none;
    for (auto& entry : std::filesystem::directory_iterator(folder(), none)) count += entry.is_regular_file();
    return count;
  }
  TrainerConfig saving(TrainerConfig config, std::int64_t every) const {
    config.checkpoint_dir = folder();
    config.checkpoint_every = every;
    config.checkpoint_keep = 1000;
    return config;
  }
  static TrainerConfig from(TrainerConfig config, const std::string& resume) {
    config.resume = resume;
    return config;
  }

  /// A run that saves is as one that does not; and one that goes on from any of its checkpoints, too.
  void expect_equal_from_everywhere(const TrainerConfig& config, std::size_t steps) {
    for (const std::int64_t every : {1, 0}) {
      SCOPED_TRACE(every ? "saved at every step" : "saved at every epoch");
      std::filesystem::remove_all(folder());
      const RecordedRun straight = train(config);
      ASSERT_EQ(straight.steps.size(), steps);
      expect_same_end(train(saving(config, every)), straight);
      EXPECT_EQ(files(), every ? steps : straight.epochs.size());
      for (const auto& entry : std::filesystem::directory_iterator(folder())) {
        SCOPED_TRACE(entry.path().filename().string());
        expect_same_end(train(from(config, entry.path().string())), straight);
      }
    }
  }

  test::TempDir dir_;
};

/// One of the run's notes names all of the values.
inline bool has_note(const RecordedRun& run, std::initializer_list<std::string_view> values) {
  return std::any_of(run.notes.begin(), run.notes.end(),
                     [&](const std::string& note) { return static_cast<bool>(names(note, values)); });
}

}  // namespace athanor::test
