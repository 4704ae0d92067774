#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/loss.h"
#include "autograd/shape.h"
#include "kernels/on_device.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/step.h"
#include "tensor/philox.h"

// A small network trained in a given precision on given batches, some of them poisoned: what a skipped step
// must leave alone is all in the result. Shared by the tests of the CPU and of devices.

namespace athanor::test {

class MixedNet final : public nn::Module {
 public:
  MixedNet() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("fc", fc);
    initialize(5);
  }
  Tensor forward(const Tensor& x) override { return fc(flatten(norm(conv(x)))); }

  nn::Conv2d conv{1, 4, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm norm{4, {.activation = Activation::relu}};
  nn::Linear fc{6 * 6 * 4, 5};
};

struct MixedRunOptions {
  Device device = kCpu;
  Precision precision = Precision::f32;
  LossScaling scaling = LossScaling::fixed(1);
  GradientLimits limits{};
  std::vector<int> batches{};   ///< their numbers, in the order they are trained on
  std::vector<int> poisoned{};  ///< of these numbers: the first pixel is infinite
};

struct MixedRun {
  std::vector<std::vector<std::byte>> bits;  ///< masters, weights, optimizer state, buffers, averages
  StepState end;
  std::vector<StepState> steps;  ///< after each
  std::vector<double> losses;
};

inline std::vector<int> count_to(int n, int leave_out = -1) {
  std::vector<int> numbers;
  for (int i = 0; i < n; ++i) {
    if (i != leave_out) numbers.push_back(i);
  }
  return numbers;
}

namespace detail {

struct MixedBatch {
  Tensor images, labels;
};

inline MixedBatch mixed_batch(int number, bool poisoned, DType dtype, Device device) {
  constexpr int kSize = 8;
  std::vector<float> pixels(kSize * 36);
  std::vector<std::int64_t> labels(kSize);
  const RandomKey key{11, static_cast<std::uint64_t>(number)};
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = random_uniform(philox_word(key, i)) - 0.5f;
  }
  for (std::size_t i = 0; i < kSize; ++i) {
    labels[i] = static_cast<std::int64_t>((i + static_cast<std::size_t>(number)) % 5);
    pixels[i * 36 + static_cast<std::size_t>(labels[i])] += 3;  // what there is to learn
  }
  if (poisoned) pixels[0] = std::numeric_limits<float>::infinity();
  return {cast(Tensor::from(pixels, {kSize, 6, 6, 1}), dtype).to(device),
          Tensor::from(labels, {kSize}).to(device)};
}

inline std::vector<std::byte> bits_of(const Tensor& x) {
  const Tensor here = x.detach().to(kCpu);
  return {here.raw_data(), here.raw_data() + here.bytes()};
}

}  // namespace detail

inline MixedRun mixed_run(const MixedRunOptions& options) {
  MixedNet net;
  ParameterArena arena(net.parameters(), net.buffers(),
                       {.precision = options.precision, .device = options.device});
  AdamW adam(arena, AdamWOptions{.weight_decay = 0.01f});
  GradientMeter meter(arena);
  Ema ema(arena, {.decay = 0.9});
  StepBuffer step(options.device, {.seed = 1, .loss_scale = options.scaling.initial});
  MixedRun run;
  step.on_known([&](const StepState& state) { run.steps.push_back(state); });
  std::vector<Tensor> losses;
  on_device(options.device, [&](auto& context) {
    const BoundStep bound(context, step);
    for (const int number : options.batches) {
      const bool poisoned = std::count(options.poisoned.begin(), options.poisoned.end(), number) > 0;
      const auto batch =
          detail::mixed_batch(number, poisoned, compute_dtype(options.precision), options.device);
      arena.buffers().snapshot();
      arena.zero_grad();
      const Tensor loss = cross_entropy(net(batch.images), batch.labels);
      losses.push_back(loss.detach());
      backward_scaled(loss, step);
      meter.measure(step, options.limits);
      adam.set_learning_rates(step, schedules::cosine(0.01, 40));
      adam.step(step);
      ema.update(step);
      arena.buffers().restore_if_skipped(step);
      finish_step(step, options.scaling, options.limits.outliers);
    }
    run.end = step.read();
    (void)step.known();  // all of them have been told of
  });
  for (const Tensor& loss : losses) run.losses.push_back(loss.item());
  for (const ParameterArena::Part& part : arena.parts()) {
    run.bits.push_back(detail::bits_of(part.masters));
    run.bits.push_back(detail::bits_of(part.weights));
  }
  for (const StateDict& state : {adam.state_dict(), ema.state_dict()}) {
    for (const StateDict::Entry& entry : state) {
      if (const Tensor* tensor = std::get_if<Tensor>(&entry.value))
        run.bits.push_back(detail::bits_of(*tensor));
    }
  }
  run.bits.push_back(detail::bits_of(arena.buffers().flat()));
  return run;
}

/// A step that is skipped leaves no trace: 20 steps, one of them poisoned, against those without it.
inline void check_skipped_leaves_no_trace(Device device, Precision precision) {
  const LossScaling pinned = LossScaling::fixed(precision == Precision::f16 ? 256.0f : 1.0f);
  MixedRunOptions options{
      .device = device, .precision = precision, .scaling = pinned, .batches = count_to(20, 7)};
  const MixedRun without = mixed_run(options);
  options.batches = count_to(20);
  options.poisoned = {7};
  const MixedRun with = mixed_run(options);
  EXPECT_EQ(with.end.applied_steps, 19);
  EXPECT_EQ(with.end.overflow_steps, 1);
  EXPECT_EQ(without.end.applied_steps, 19);
  EXPECT_TRUE(with.bits == without.bits);
  EXPECT_EQ(with.end.learning_rate[0], without.end.learning_rate[0]);
  EXPECT_EQ(with.end.loss_scale, pinned.initial);
  EXPECT_EQ(with.end.norm_mean, without.end.norm_mean);
  EXPECT_EQ(with.end.norm_variance, without.end.norm_variance);
  EXPECT_EQ(with.end.norm_count, without.end.norm_count);
  EXPECT_LT(with.losses.back(), 0.8 * with.losses.front()) << "it learns";
  ASSERT_EQ(with.steps.size(), 20u) << "the host knows of every step";
  for (std::size_t i = 0; i < with.steps.size(); ++i) EXPECT_EQ(with.steps[i].found_inf, i == 7) << i;
}

}  // namespace athanor::test
