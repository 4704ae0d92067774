#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "optim/step.h"
#include "tensor/cuda/runtime.h"
#include "tensor/error.h"
#include "tensor/graph.h"
#include "tests/cuda/device.h"

namespace athanor::optim_test {

using OptimizerOnDevice = test::DeviceTest;

constexpr const char* kKinds[] = {"sgd", "momentum", "adamw", "muon"};

std::unique_ptr<Optimizer> make(const std::string& kind, ParameterArena& arena) {
  if (kind == "sgd") return std::make_unique<Sgd>(arena);
  if (kind == "momentum") return std::make_unique<Sgd>(arena, SgdOptions{.momentum = 0.9f, .nesterov = true});
  if (kind == "adamw") return std::make_unique<AdamW>(arena);
  return std::make_unique<Muon>(arena, MuonOptions{}, AdamWOptions{}, 0.5f);
}

/// Three matrices of one shape and two of another, whose elements are no multiple of four; vectors, one
/// longer than a chunk.
std::vector<Shape> small_network() {
  return {{12, 3, 3, 5}, {20000}, {7, 9}, {12, 3, 3, 5}, {5}, {12, 3, 3, 5}, {7, 9}};
}

struct Training {
  std::vector<Parameter> parameters;
  std::unique_ptr<ParameterArena> arena;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<GradientMeter> meter;
  std::unique_ptr<Ema> ema;
  StepBuffer state;
  int steps = 0;

  Training(const std::string& kind, Precision precision, Device device,
           const std::vector<Shape>& shapes = small_network())
      : state(device) {
    for (const Shape& shape : shapes) {
      const Tensor weight = test::filled({shape}, DType::f32, {parameters.size()}, -0.1, 0.1).to(device);
      require_grad(weight);
      parameters.push_back({std::to_string(parameters.size()), weight, shape.rank() == 1});
    }
    arena = std::make_unique<ParameterArena>(parameters, std::vector<NamedTensor>{}, precision, device);
    optimizer = make(kind, *arena);
    meter = std::make_unique<GradientMeter>(*arena);
  }

  /// Gradients for the parameters that `frozen` does not name.
  void deliver(int frozen = -1, float poison = 0) {
    arena->zero_grad();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (static_cast<int>(i) == frozen) continue;
      const Tensor g = test::filled({parameters[i].tensor.shape()}, DType::f32, {100 + i}, -1, 1);
      g.data<float>()[0] += static_cast<float>(steps) + poison;
      leaf_of(parameters[i].tensor).accumulate(g.to(state.device()));
    }
    ++steps;
  }
  void update() {
    meter->measure(state, {.max_norm = 5});
    optimizer->set_learning_rates(state, schedules::constant(0.01));
    optimizer->step(state);
    if (ema) ema->update(state);
    finish_step(state);
  }
  std::vector<Tensor> averages() const {
    std::vector<Tensor> all;
    for (const StateDict::Entry& entry : ema->state_dict())
      all.push_back(std::get<Tensor>(entry.value).to(kCpu));
    return all;
  }
};

TEST_F(OptimizerOnDevice, FusedAveragesHaveTheBitsOfTheirOwnPass) {
  for (const std::string kind : kKinds) {
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
      SCOPED_TRACE(fmt::format("{} {}", kind, name_of(precision)));
      Training fused(kind, precision, test::device()), separate(kind, precision, test::device());
      for (Training* training : {&fused, &separate}) {
        training->ema = std::make_unique<Ema>(*training->arena, EmaOptions{.decay = 0.75});
        if (training == &fused) training->ema->fuse_into(*training->optimizer);
        const std::vector<Tensor> begin = training->averages();
        for (int t = 0; t < 5; ++t) {
          training->deliver(t % 3, t == 2 ? std::numeric_limits<float>::infinity() : 0);
          training->update();
        }
        EXPECT_EQ(training->state.read().overflow_steps, 1);
        for (std::size_t i = 0; i < begin.size(); ++i) {
          EXPECT_FALSE(test::same_bits(training->averages()[i], begin[i])) << i;
        }
      }
      for (std::size_t i = 0; i < fused.parameters.size(); ++i) {
        EXPECT_TRUE(test::same_bits(fused.averages()[i], separate.averages()[i])) << i;
      }
      EXPECT_EQ(fused.arena->weights_hash(), separate.arena->weights_hash());
    }
  }
}

TEST_F(OptimizerOnDevice, BatchedMuonFollowsTheCpu) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    Training cpu("muon", precision, kCpu), device("muon", precision, test::device());
    for (Training* training : {&cpu, &device}) {
      for (int t = 0; t < 3; ++t) {
        training->deliver(t);
        training->update();
      }
    }
    for (int i = 0; i < cpu.arena->size(); ++i) {
      EXPECT_TRUE(test::close(device.arena->master(i).to(kCpu), cpu.arena->master(i), 1e-5)) << i;
    }
  }
}

TEST_F(OptimizerOnDevice, AStepAllocatesNothing) {
  if (test::kChecksEveryAccess)
    GTEST_SKIP() << "a checking emulator gives every block an allocation of its own";
  for (const std::string kind : kKinds) {
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
      Training training(kind, precision, test::device());
      training.ema = std::make_unique<Ema>(*training.arena);
      training.ema->fuse_into(*training.optimizer);
      training.deliver(3);
      training.update();
      training.update();  // Muon's first step on its own streams
      const std::int64_t growths = allocator_of(test::device()).stats().growths,
                         here = allocator_of(kCpu).stats().growths;
      {
        const ForbidSync no_waiting;
        training.update();
      }
      EXPECT_EQ(allocator_of(test::device()).stats().growths, growths) << kind;
      EXPECT_EQ(allocator_of(kCpu).stats().growths, here) << kind;
    }
  }
}

// Launches ------------------------------------------------------------------------------------------------

/// What one update queues, by what a capture of it holds. Captured work does not run.
std::size_t launches(const std::string& kind, Precision precision, const std::vector<Shape>& shapes,
                     bool averages = false, bool fused = false) {
  const Stream stream = Stream::create(test::device());
  const StreamGuard guard(stream);
  Training training(kind, precision, test::device(), shapes);
  if (averages) training.ema = std::make_unique<Ema>(*training.arena);
  if (fused) training.ema->fuse_into(*training.optimizer);
  GraphMemory pool(test::device());
  const auto step = [&] {
    training.optimizer->step(training.state);
    if (training.ema) training.ema->update(training.state);
  };
  training.deliver();
  for (std::int64_t held = -1; held != pool.held_bytes();) {
    held = pool.held_bytes();
    const GraphMemory::Use use(pool);
    step();
  }
  const GraphMemory::Use use(pool);
  cudaGraph_t graph = nullptr;
  ATH_TRY(
      cudaStreamBeginCapture(static_cast<cudaStream_t>(stream.native()), cudaStreamCaptureModeThreadLocal));
  step();
  ATH_TRY(cudaStreamEndCapture(static_cast<cudaStream_t>(stream.native()), &graph));
  std::size_t nodes = 0;
  ATH_TRY(cudaGraphGetNodes(graph, nullptr, &nodes));
  ATH_TRY(cudaGraphDestroy(graph));
  return nodes;
}

/// A ResNet-18 for CIFAR with 2 channels where it has 64: 62 tensors, 21 of them matrices, of 12 shapes.
std::vector<Shape> small_resnet18() {
  std::vector<Shape> shapes = {{2, 3, 3, 3}, {2}, {2}};
  std::int64_t in = 2;
  for (const std::int64_t out : {2, 2, 4, 4, 8, 8, 16, 16}) {
    shapes.insert(shapes.end(), {{out, 3, 3, in}, {out}, {out}, {out, 3, 3, out}, {out}, {out}});
    if (in != out) shapes.insert(shapes.end(), {{out, 1, 1, in}, {out}, {out}});
    in = out;
  }
  shapes.insert(shapes.end(), {{10, 16}, {10}});
  return shapes;
}

// One launch prepares what differs by parameter, one updates all elements; of every dtype.
TEST_F(OptimizerOnDevice, AnUpdateOfAllParametersIsOneLaunchPerDtype) {
  for (const std::string kind : {"sgd", "momentum", "adamw"}) {
    EXPECT_EQ(launches(kind, Precision::f32, small_resnet18()), 2u) << kind;
    EXPECT_EQ(launches(kind, Precision::f16, small_resnet18()), 4u) << kind;
    EXPECT_EQ(launches(kind, Precision::f16, small_resnet18(), true), 6u) << kind;
    EXPECT_EQ(launches(kind, Precision::f16, small_resnet18(), true, true), 4u)
        << kind << ": averages are free";
  }
}

TEST_F(OptimizerOnDevice, MatricesOfOneShapeShareLaunches) {
  const Shape matrix = {12, 3, 3, 5}, vector = {8};
  const std::size_t one = launches("muon", Precision::f32, {matrix, vector}),
                    many = launches("muon", Precision::f32, {matrix, matrix, vector, matrix, matrix});
  EXPECT_GT(one, 25u);  // five iterations of five launches
  EXPECT_LE(many, one);

  std::size_t alone = 0;
  for (const Shape& shape : small_resnet18()) {
    if (shape.rank() >= 2) alone += launches("muon", Precision::f32, {shape, vector}) - 2;  // 2 of AdamW
  }
  const std::size_t together = launches("muon", Precision::f32, small_resnet18());
  RecordProperty("resnet18_one_by_one", static_cast<int>(alone + 2));
  RecordProperty("resnet18_by_shape", static_cast<int>(together));
  fmt::print("ResNet-18, a step of Muon: {} launches one matrix at a time, {} by shape\n", alone + 2,
             together);
  EXPECT_LE(together * 21, (alone + 2) * 13) << "12 shapes of 21 matrices";
}

}  // namespace athanor::optim_test
