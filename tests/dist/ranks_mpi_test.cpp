// A Trainer on several ranks, which are processes here: what threads of one process cannot show.
#include <gtest/gtest.h>

#include "autograd/shape.h"
#include "data/synthetic.h"
#include "examples/athanor_tool/rank_bytes.h"
#include "kernels/cpu/isa.h"
#include "nn/linear.h"
#include "optim/adam.h"
#include "tests/support/errors.h"
#include "tests/support/mpi_main.h"
#include "trainer/trainer.h"

namespace athanor::ranks_mpi_test {

constexpr ImageSpec kSpec{8, 8, 1, 10};

/// 8.6 million parameters, nearly all of them in one matrix: next to them, the 2 MiB that allocators round up
/// to are little.
class Wide final : public nn::Module {
 public:
  Wide() {
    register_module("in", in);
    register_module("middle", middle);
    register_module("out", out);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override { return out(middle(in(flatten(x)))); }

  nn::Linear in{64, 2896, {.activation = Activation::relu}},
      middle{2896, 2896, {.activation = Activation::relu}};
  nn::Linear out{2896, 10};
};

TrainerConfig wide_config(Strategy strategy) {
  TrainerConfig config;
  config.strategy = strategy;
  config.epochs = 1;
  config.batch_size = 16;
  config.lr = 1e-3;
  config.threads = 1;
  config.precision = Precision::bf16;
  config.optimizer = [](ParameterArena& arena) { return std::make_unique<AdamW>(arena); };
  return config;
}

FitReport train(const TrainerConfig& config) {
  const auto data = synthetic(kSpec, 64, 1), held_out = synthetic(kSpec, 20, 2);
  Wide model;
  Trainer trainer(config, &test::mpi_transport());
  return trainer.fit(model, *data, *held_out);
}

// Masters and moments, twelve bytes per parameter, are divided by two or not: with a limit between what both
// need, DDP says who holds the memory, and ZeRO-1 trains.
TEST(RanksMemory, AWideModelThatDdpRefusesTrainsUnderZero1) {
  if (!cpu::has_avx512_bf16())
    GTEST_SKIP() << "this CPU has no bf16 products: those of the wide model are widened to f32 in memory "
                    "that is not counted here";
  const int ranks = test::mpi_transport().world_size();
  tool::RankBytes ddp, zero1;
  {
    Wide model;
    const ParameterArena arena(model.parameters(), model.buffers(),
                               dist::bucketed({.precision = Precision::bf16}, ranks));
    const dist::BucketLayout layout(arena, ranks);
    const auto adamw = [](const Parameter&) { return 2; };
    ddp = tool::bytes_per_rank(arena, layout, adamw, false);
    zero1 = tool::bytes_per_rank(arena, layout, adamw, true);
  }
  // The model's own tensors go into the arena; activations of eight samples are small.
  allocator_of(kCpu).trim();
  const std::int64_t held = allocator_of(kCpu).stats().current + allocator_of(kCpu).stats().cached;
  TrainerConfig config = wide_config(Strategy::zero1);
  config.memory_limit = held + zero1.total() * 122 / 100;  // allocators round up
  ASSERT_LT(zero1.total() * 130 / 100, ddp.total());
  const FitReport report = train(config);
  EXPECT_EQ(report.steps.applied, 4);
  config.strategy = Strategy::ddp;
  allocator_of(kCpu).trim();
  EXPECT_ERROR(OutOfMemoryError, train(config), "weights", "gradients", "--memory-limit")
      << "DDP fits into " << config.memory_limit << " bytes";
}

}  // namespace athanor::ranks_mpi_test
