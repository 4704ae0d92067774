#pragma once

#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/shape.h"
#include "data/digits.h"
#include "dist/transports/thread_transport.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/stochastic_depth.h"
#include "tests/support/resumed_run.h"
#include "trainer/trainer.h"

// A training on the digits whose result does not depend on how a batch is divided, but for rounding: no batch
// norm, no dropout. By as many ranks as a test wants.

namespace athanor::test {

class PlainNet : public nn::Module {
 public:
  PlainNet() {
    register_module("conv", conv);
    register_module("out", out);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override { return out(flatten(conv(x))); }

  nn::Conv2d conv{1, 6, 3, {.padding = 1, .activation = Activation::relu}};
  nn::Linear out{6 * 64, 10};
};

/// With a batch norm, whose statistics do depend on it, unless all ranks share them (--sync-bn).
class NormedNet final : public nn::Module {
 public:
  NormedNet() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("out", out);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override { return out(flatten(norm(conv(x)))); }

  nn::Conv2d conv{1, 6, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm norm{6, {.activation = Activation::relu}};
  nn::Linear out{6 * 64, 10};
};

/// With masks, which are the sample's own, whichever rank has it.
class DroppingNet final : public nn::Module {
 public:
  DroppingNet() {
    register_module("conv", conv);
    register_module("depth", depth);
    register_module("dropout", dropout);
    register_module("out", out);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override { return out(dropout(flatten(depth(conv(x))))); }

  nn::Conv2d conv{1, 5, 3, {.padding = 1, .activation = Activation::relu}};
  nn::StochasticDepth depth{0.3};
  nn::Dropout dropout{0.5f};
  nn::Linear out{5 * 64, 10};
};

/// 27 samples a batch, which no number of ranks but 3 divides; 53 batches an epoch.
inline TrainerConfig ranks_config() {
  TrainerConfig config;
  config.epochs = 1;
  config.max_steps = 50;
  config.batch_size = 27;
  config.lr = 0.05;
  config.threads = 1;
  config.clip_norm = 1;
  config.buckets = {.bucket_bytes = 4000, .first_bucket_bytes = 200};
  return config;
}

template <class Net = PlainNet>
RecordedRun train_rank(const TrainerConfig& config, dist::Transport* transport, const OnStep& on_step = {}) {
  static const auto train = digits(Split::train), held_out = digits(Split::test);
  Net net;
  Trainer trainer(config, transport);
  return record(trainer, net, *train, *held_out, on_step, true);
}

/// The same on all ranks, threads of this process; one result each.
template <class Net = PlainNet>
std::vector<RecordedRun> train_ranks(int world_size, const std::function<TrainerConfig(int rank)>& config,
                                     const OnStep& on_step = {}, const dist::ThreadFaults& faults = {}) {
  if (world_size == 1) return {train_rank<Net>(config(0), nullptr, on_step)};
  std::vector<RecordedRun> runs(static_cast<std::size_t>(world_size));
  dist::run_ranks(
      world_size,
      [&](dist::Transport& transport) {
        runs[static_cast<std::size_t>(transport.rank())] =
            train_rank<Net>(config(transport.rank()), &transport, on_step);
      },
      faults);
  return runs;
}

template <class Net = PlainNet>
std::vector<RecordedRun> train_ranks(int world_size, const TrainerConfig& config, const OnStep& on_step = {},
                                     const dist::ThreadFaults& faults = {}) {
  return train_ranks<Net>(
      world_size, [&](int) { return config; }, on_step, faults);
}

inline TrainerConfig with(TrainerConfig config, Strategy strategy) {
  config.strategy = strategy;
  return config;
}

/// Of all ranks: the same weights, after every step and at the end, and the same reports, bit for bit.
inline void expect_alike(const std::vector<RecordedRun>& runs) {
  for (const RecordedRun& run : runs) {
    EXPECT_EQ(run.weights, runs[0].weights);
    EXPECT_EQ(run.hashes, runs[0].hashes);
    EXPECT_EQ(run.report.weights_hash, runs[0].report.weights_hash);
    EXPECT_EQ(run.report.stopped_by, runs[0].report.stopped_by);
    EXPECT_EQ(run.report.test_loss, runs[0].report.test_loss);
    ASSERT_EQ(run.epochs.size(), runs[0].epochs.size());
    for (std::size_t i = 0; i < run.epochs.size(); ++i) {
      EXPECT_EQ(run.epochs[i].train_loss, runs[0].epochs[i].train_loss);
      EXPECT_EQ(run.epochs[i].train_accuracy, runs[0].epochs[i].train_accuracy);
      EXPECT_EQ(run.epochs[i].val_loss, runs[0].epochs[i].val_loss);
      EXPECT_EQ(run.epochs[i].val_accuracy, runs[0].epochs[i].val_accuracy);
    }
  }
}

}  // namespace athanor::test
