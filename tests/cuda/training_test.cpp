#include <cmath>
#include <vector>

#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/loss.h"
#include "autograd/reduce.h"
#include "data/digits.h"
#include "data/loader.h"
#include "data/preprocess.h"
#include "kernels/on_device.h"
#include "nn/models/model.h"
#include "optim/adam.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "optim/step.h"
#include "tests/cuda/device.h"

namespace athanor::training_test {

using TrainingOnDevice = test::DeviceTest;

enum class Kind : std::uint8_t { sgd, adamw, muon };

std::unique_ptr<Optimizer> make_optimizer(Kind kind, ParameterArena& arena) {
  switch (kind) {
    case Kind::sgd:
      return std::make_unique<Sgd>(arena,
                                   SgdOptions{.momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true});
    case Kind::adamw: return std::make_unique<AdamW>(arena, AdamWOptions{});
    case Kind::muon:
      return std::make_unique<Muon>(arena, MuonOptions{.dtype = DType::f32}, AdamWOptions{}, 0.1f);
  }
  return nullptr;
}

struct Run {
  std::vector<double> losses;
  std::uint64_t weights_hash = 0;
};

// The digits CNN, with augmentation, as the trainer runs a step.
Run train(Device device, Kind kind, int steps, double lr) {
  const auto data = digits(Split::train);
  Loader loader(*data, {.batch_size = 32, .shuffle = true, .drop_last = true, .seed = 3});
  const Preprocess preprocess(data->spec(), measure(*data), DType::f32, device, Augment{.pad = 1}, 3);
  const auto model = nn::make_model("digits_cnn", {10, 1, 8}, 3);
  ParameterArena arena(model->parameters(), model->buffers(), {.device = device});
  GradientMeter meter(arena);
  const auto optimizer = make_optimizer(kind, arena);
  const Schedule schedule = schedules::cosine(lr, steps);
  StepBuffer step(device, {.seed = 3});
  return on_device(device, [&](auto& context) {
    const BoundStep bound(context, step);
    Run run;
    std::vector<Tensor> losses;
    Batch batch;
    while (static_cast<int>(losses.size()) < steps) {
      if (!loader.next(batch)) {
        loader.start_epoch(loader.epoch() + 1);
        continue;
      }
      arena.buffers().snapshot();
      arena.zero_grad();
      const Tensor loss =
          cross_entropy((*model)(preprocess(batch, loader.epoch(), true)), batch.labels.to(device));
      backward(loss);
      meter.measure(step, {.max_norm = 5});
      optimizer->set_learning_rates(step, schedule);
      optimizer->step(step);
      arena.buffers().restore_if_skipped(step);
      finish_step(step);
      losses.push_back(loss.detach());
    }
    for (const Tensor& loss : losses) run.losses.push_back(loss.item());
    EXPECT_EQ(step.read().applied_steps, static_cast<std::int64_t>(losses.size()));
    run.weights_hash = arena.weights_hash();
    return run;
  });
}

// Rounding differs in the last bit. Losses are equal but for that until some ReLU or maximum falls the other
// way by it: then they part by 1e-4 in a step, and training magnifies that. So the first steps are compared
// closely, and the rest as courses that must stay together.
double may_differ(std::size_t step) {
  return step < 5 ? 1e-4 : 0.1;
}

// `steps` of training end below `left` times the first loss. A few of them touch all that the others do.
void follows_the_cpu(Kind kind, int steps, double lr, double left) {
  if (test::kChecksEveryAccess) steps = 4;
  const Run cpu = train(kCpu, kind, steps, lr), device = train(test::device(), kind, steps, lr);
  ASSERT_EQ(cpu.losses.size(), static_cast<std::size_t>(steps));
  ASSERT_EQ(device.losses.size(), cpu.losses.size());
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    EXPECT_NEAR(device.losses[i], cpu.losses[i], may_differ(i) * std::abs(cpu.losses[i])) << "step " << i;
  }
  if (test::kChecksEveryAccess) return;
  EXPECT_LT(cpu.losses.back(), left * cpu.losses.front()) << "it learns";
}

TEST_F(TrainingOnDevice, SgdLossFollowsTheCpu) {
  follows_the_cpu(Kind::sgd, 50, 0.02, 0.5);
}
TEST_F(TrainingOnDevice, AdamWLossFollowsTheCpu) {
  follows_the_cpu(Kind::adamw, 20, 1e-3, 0.8);
}
TEST_F(TrainingOnDevice, MuonLossFollowsTheCpu) {
  follows_the_cpu(Kind::muon, 10, 5e-3, 0.97);
}

TEST_F(TrainingOnDevice, TheSameRunGivesTheSameWeights) {
  constexpr int kSteps = test::kChecksEveryAccess ? 2 : 6;
  EXPECT_EQ(train(test::device(), Kind::sgd, kSteps, 0.02).weights_hash,
            train(test::device(), Kind::sgd, kSteps, 0.02).weights_hash);
}

// A step with a non-finite gradient changes nothing, decided on the device, while the host goes on.
TEST_F(TrainingOnDevice, ASkippedStepKeepsItsLearningRate) {
  const Tensor w = Tensor::from(std::vector<float>{1, 2}, {2});
  require_grad(w);
  ParameterArena arena({{"w", w}}, {}, {.device = test::device()});
  GradientMeter meter(arena);
  Sgd sgd(arena);
  StepBuffer step(test::device());
  const Schedule schedule = [](std::int64_t applied) { return applied == 0 ? 0.5f : 0.25f; };
  for (const float g : {INFINITY, 1.0f, 1.0f}) {
    arena.zero_grad();
    const Tensor x = Tensor::from(std::vector<float>{g, 1}, {2}, test::device());
    backward(sum(mul(arena.parameters()[0].tensor, x)));  // whose gradient is x
    meter.measure(step);
    sgd.set_learning_rates(step, schedule);
    sgd.step(step);
    finish_step(step);
  }
  EXPECT_EQ(step.read().overflow_steps, 1);
  EXPECT_EQ(step.read().applied_steps, 2);
  EXPECT_EQ(arena.master(0).to_vector(), (std::vector<double>{1 - 0.75, 2 - 0.75}));
}

}  // namespace athanor::training_test
