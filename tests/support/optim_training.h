#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/engine.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/muon.h"
#include "optim/optimizer.h"
#include "optim/sgd.h"
#include "optim/step.h"

// Optimizers without a network: parameters and gradients that a test makes up.

namespace athanor::test {

inline Tensor filled(const Shape& shape, std::vector<float> values) {
  Tensor x = Tensor::from(values, shape);
  require_grad(x);
  return x;
}

inline void deliver(const Tensor& leaf, std::vector<float> gradient) {
  leaf_of(leaf).accumulate(Tensor::from(gradient, leaf.shape()));
}

inline std::vector<std::byte> bytes_of(const Tensor& x) {
  return {x.raw_data(), x.raw_data() + x.bytes()};
}

/// Every kind of optimizer, for what must hold for all of them.
inline constexpr const char* kOptimizerKinds[] = {"sgd", "momentum", "adam", "adamw", "muon", "muon_bf16"};

inline std::unique_ptr<Optimizer> make_optimizer(const std::string& kind, ParameterArena& arena) {
  if (kind == "sgd") return std::make_unique<Sgd>(arena);
  if (kind == "momentum") return std::make_unique<Sgd>(arena, SgdOptions{.momentum = 0.9f, .nesterov = true});
  if (kind == "adam") return std::make_unique<Adam>(arena, AdamOptions{.weight_decay = 0.1f});
  if (kind == "adamw") return std::make_unique<AdamW>(arena);
  const MuonOptions options{.dtype = kind == "muon" ? DType::f32 : DType::bf16};
  return std::make_unique<Muon>(arena, options, AdamWOptions{}, 0.5f);
}

inline float noise(std::int64_t i) {
  return std::sin(static_cast<float>(i) * 12.9898f) * (i % 3 == 0 ? 1.0f : 0.1f);
}

struct OptimModel {
  std::vector<Parameter> parameters;
  std::vector<NamedTensor> buffers;

  /// Three matrices (wide, tall, of a convolution), longer than a chunk where `width` is large, two vectors,
  /// and a buffer.
  OptimModel(std::int64_t width = 30) {
    add("conv", {6, 3, 3, 2});
    add("scale", {6}, true);
    add("wide", {8, width});
    add("tall", {width, 5});
    add("bias", {5});
    buffers.push_back({"mean", Tensor::from(std::vector<float>{1, 2}, {2})});
  }
  /// These shapes; vectors stay f32.
  OptimModel(const std::vector<Shape>& shapes) {
    for (const Shape& shape : shapes) add(std::to_string(parameters.size()), shape, shape.rank() == 1);
  }

 private:
  void add(const std::string& name, const Shape& shape, bool keep_f32 = false) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(noise(i + 7));
    parameters.push_back({name, filled(shape, values), keep_f32});
  }
};

/// Steps of one optimizer on gradients that are made up, with all that surrounds it in a training.
struct OptimTraining {
  OptimModel model;
  ParameterArena arena;
  std::unique_ptr<Optimizer> optimizer;
  GradientMeter meter{arena};
  StepBuffer state;
  std::unique_ptr<Ema> ema;
  std::vector<Tensor> gradients;
  std::vector<bool> frozen;  // gets no gradient
  Schedule schedule = schedules::cosine(0.01, 100);

  explicit OptimTraining(const std::string& kind, Precision precision = Precision::f32,
                         OptimModel shapes = {}, Device device = kCpu)
      : model(std::move(shapes)),
        arena(model.parameters, model.buffers, {.precision = precision, .device = device}),
        optimizer(make_optimizer(kind, arena)),
        state(device),
        frozen(model.parameters.size()) {
    for (const Parameter& p : model.parameters) gradients.push_back(Tensor::empty(p.tensor.shape()));
  }

  /// From now on steps average the weights, by the optimizer's own kernels if `fused`.
  void average(const EmaOptions& options, bool fused) {
    ema = std::make_unique<Ema>(arena, options);
    if (fused) ema->fuse_into(*optimizer);
  }
  /// Their bytes, by name.
  std::vector<std::vector<std::byte>> averages() const {
    std::vector<std::vector<std::byte>> values;
    for (const StateDict::Entry& entry : ema->state_dict())
      values.push_back(bytes_of(std::get<Tensor>(entry.value).to(kCpu)));
    return values;
  }

  void deliver(float poison = 0) {
    arena.zero_grad();
    const std::int64_t step = state.device().is_cpu() ? state->applied_steps : delivered_++;
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      if (frozen[p]) continue;
      float* g = gradients[p].data<float>();
      for (std::int64_t i = 0; i < gradients[p].numel(); ++i)
        g[i] = noise(i * 31 + step * 101 + static_cast<std::int64_t>(p)) + poison;
      leaf_of(model.parameters[p].tensor).accumulate(gradients[p].to(state.device()));
    }
  }
  void update() {
    meter.measure(state, {.max_norm = 5});
    optimizer->set_learning_rates(state, schedule);
    optimizer->step(state);
    if (ema) ema->update(state);
    finish_step(state);
  }
  void step(float poison = 0) {
    deliver(poison);
    update();
  }

 private:
  std::int64_t delivered_ = 0;
};

}  // namespace athanor::test
