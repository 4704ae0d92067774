#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nn/batch_norm.h"
#include "tests/support/small_tasks.h"
#include "tests/support/temp_dir.h"
#include "trainer/checkpoints/checkpoint.h"

// What a run uses and does not train, on any device: a frozen network beside the one that learns.

namespace athanor::test {

/// A body with statistics, and a head.
struct Net final : nn::Module {
  struct Body final : nn::Module {
    nn::Linear linear{16, 12};
    nn::BatchNorm norm{12, {.activation = Activation::relu}};
    Body() { register_module("linear", linear), register_module("norm", norm); }
    Tensor forward(const Tensor& x) override { return norm(linear(x)); }
  } body;
  nn::BatchNorm norm{12};
  nn::Linear head{12, 5};
  explicit Net(std::uint64_t seed) {
    register_module("body", body), register_module("norm", norm), register_module("head", head);
    initialize(seed);
  }
  Tensor forward(const Tensor& x) override { return head(norm(body(flatten(x)))); }
};

/// The answers of a network that stays as it is, learned by another.
struct Distillation : Task {
  Net student{1}, teacher;
  std::vector<bool> modes;  // of the teacher, in each step
  explicit Distillation(std::uint64_t seed = 2) : teacher(seed) {
    network("student", student);
    frozen("teacher", teacher);
  }
  Tensor training_step(const Batch& batch, Step&) override {
    modes.push_back(teacher.training());
    return mse_loss(student(batch["image"]), teacher(batch["image"]));
  }
  void validation_step(const Batch& batch, Step& step) override {
    step.log("loss", mse_loss(student(batch["image"]), teacher(batch["image"])));
  }
};

/// All values of a module, parameters and buffers, in f32.
inline std::vector<double> values_of(const nn::Module& module) {
  std::vector<double> all;
  for (const StateDict::Entry& entry : module.state_dict()) {
    const auto values = std::get<Tensor>(entry.value).detach().to(kCpu).to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

inline std::vector<double> values_of(const StateDict& state) {
  std::vector<double> all;
  for (const StateDict::Entry& entry : state) {
    const auto values = std::get<Tensor>(entry.value).to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

inline void expect_a_network_stays(Device device, Precision precision) {
  const TempDir folder;
  TrainerConfig config = small_config();
  config.device = device;
  config.precision = precision;
  config.ema_decay = 0.9;
  config.checkpoint_dir = folder / "saved";
  Distillation task;
  const std::vector<double> before = values_of(task.teacher), student = values_of(task.student);
  const RecordedRun run = train(task, config);
  EXPECT_LT(run.epochs.back().train_loss, 0.5 * run.epochs.front().train_loss);
  EXPECT_NE(values_of(task.student), student);
  EXPECT_EQ(task.modes, std::vector<bool>(30, false));
  EXPECT_FALSE(task.teacher.training());
  EXPECT_EQ(task.teacher.head.parameters()[0].tensor.dtype(), compute_dtype(precision));
  EXPECT_EQ(task.teacher.head.parameters()[0].tensor.device(), device);

  const StateDict saved = load_checkpoint(run.report.checkpoint);
  EXPECT_EQ(values_of(saved.under("model.teacher.")), before) << name_of(precision);
  if (precision == Precision::f32) {
    EXPECT_EQ(values_of(task.teacher), before);
  }
  for (const char* part : {"optimizer.", "ema."}) {
    for (const std::string& name : saved.under(part).names())
      EXPECT_EQ(name.find("teacher"), std::string::npos) << part << name;
  }
}

inline void expect_a_resume_keeps_it(Device device, Precision precision) {
  TrainerConfig config = small_config();
  config.device = device;
  config.precision = precision;
  Distillation whole;
  const RecordedRun expected = train(whole, config);
  const TempDir folder;
  config.checkpoint_dir = folder / "saved";
  config.checkpoint_every = 4;
  Distillation before;
  (void)train(before, config, nullptr, std::make_unique<StopAfter>(14));
  config.resume = "auto";
  Distillation another(3);  // that a program brings by mistake
  const RecordedRun run = train(another, config);
  EXPECT_EQ(run.report.weights_hash, expected.report.weights_hash);
  EXPECT_EQ(run.weights, expected.weights);
  EXPECT_EQ(run.epochs.back().val_loss, expected.epochs.back().val_loss);
  EXPECT_EQ(values_of(another.teacher), values_of(whole.teacher));
}

}  // namespace athanor::test
