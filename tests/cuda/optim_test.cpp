#include <limits>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/cuda/runtime.h"
#include "tensor/graph.h"
#include "tests/cuda/device.h"
#include "tests/support/optim_training.h"

namespace athanor::optim_test {

using OptimizerOnDevice = test::DeviceTest;
using test::OptimTraining;

constexpr const char* kKinds[] = {"sgd", "momentum", "adamw", "muon"};

/// Three matrices of one shape and two of another, whose elements are no multiple of four; vectors, one
/// longer than a chunk.
std::vector<Shape> small_network() {
  return {{12, 3, 3, 5}, {20000}, {7, 9}, {12, 3, 3, 5}, {5}, {12, 3, 3, 5}, {7, 9}};
}

TEST_F(OptimizerOnDevice, FusedAveragesHaveTheBitsOfTheirOwnPass) {
  for (const std::string kind : kKinds) {
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
      SCOPED_TRACE(fmt::format("{} {}", kind, name_of(precision)));
      OptimTraining fused(kind, precision, small_network(), test::device()),
          separate(kind, precision, small_network(), test::device());
      for (OptimTraining* const training : {&fused, &separate}) {
        training->average({.decay = 0.75}, training == &fused);
        const auto begin = training->averages();
        for (std::size_t t = 0; t < 5; ++t) {
          training->frozen.assign(begin.size(), false);
          training->frozen[t % 3] = true;
          training->step(t == 2 ? std::numeric_limits<float>::infinity() : 0);
        }
        EXPECT_EQ(training->state.read().overflow_steps, 1);
        const auto end = training->averages();
        for (std::size_t i = 0; i < begin.size(); ++i) EXPECT_NE(end[i], begin[i]) << i;
      }
      EXPECT_EQ(fused.averages(), separate.averages());
      EXPECT_EQ(fused.arena.weights_hash(), separate.arena.weights_hash());
    }
  }
}

TEST_F(OptimizerOnDevice, BatchedMuonFollowsTheCpu) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    OptimTraining cpu("muon", precision, small_network()),
        device("muon", precision, small_network(), test::device());
    for (OptimTraining* const training : {&cpu, &device}) {
      for (std::size_t t = 0; t < 3; ++t) {
        training->frozen.assign(training->frozen.size(), false);
        training->frozen[t] = true;
        training->step();
      }
    }
    for (int i = 0; i < cpu.arena.size(); ++i) {
      EXPECT_TRUE(test::close(device.arena.master(i).to(kCpu), cpu.arena.master(i), 1e-5)) << i;
    }
  }
}

TEST_F(OptimizerOnDevice, AStepAllocatesNothing) {
  if (test::kChecksEveryAccess)
    GTEST_SKIP() << "a checking emulator gives every block an allocation of its own";
  for (const std::string kind : kKinds) {
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
      OptimTraining training(kind, precision, small_network(), test::device());
      training.average({}, true);
      training.frozen[3] = true;
      training.deliver();
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
  OptimTraining training(kind, precision, shapes, test::device());
  if (averages) training.average({}, fused);
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
  EXPECT_EQ(one, 22u) << "momentum, a norm of three, five iterations of three products, the step; AdamW's 2";
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
