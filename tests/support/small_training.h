#pragma once

#include <cstdint>
#include <functional>

#include "autograd/shape.h"
#include "data/synthetic.h"
#include "nn/linear.h"
#include "tests/support/recorded_run.h"

// A training of a hundredth of a second, for what does not depend on the model: a perceptron on synthetic
// images.

namespace athanor::test {

inline constexpr ImageSpec kSmallSpec{4, 4, 1, 5};

/// Two linear layers on flattened images; what `on_forward` does to the logits of a training pass is up to
/// the test.
class Perceptron final : public nn::Module {
 public:
  explicit Perceptron(std::uint64_t seed = 1) {
    register_module("hidden", hidden);
    register_module("out", out);
    initialize(seed);
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = out(hidden(flatten(x)));
    if (training()) {
      if (on_forward) on_forward(++calls, y);
    } else if (on_validation) {
      on_validation(++validations, y);
    }
    return y;
  }

  nn::Linear hidden{16, 24, {.activation = Activation::relu}};
  nn::Linear out{24, 5};
  int calls = 0, validations = 0;
  std::function<void(int, const Tensor&)> on_forward, on_validation;
};

inline TrainerConfig small_config() {
  TrainerConfig config;
  config.epochs = 3;
  config.batch_size = 16;
  config.lr = 0.1;
  return config;
}

inline RecordedRun run(const TrainerConfig& config, std::int64_t samples = 160,
                       const std::function<void(int, const Tensor&)>& on_forward = {}) {
  Perceptron model;
  model.on_forward = on_forward;
  Trainer trainer(config);
  return record(trainer, model, *synthetic(kSmallSpec, samples, 1), *synthetic(kSmallSpec, 50, 2));
}

}  // namespace athanor::test
