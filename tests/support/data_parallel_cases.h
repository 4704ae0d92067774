#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/reduce.h"
#include "dist/collectives/exchange.h"
#include "dist/ddp.h"
#include "dist/transports/thread_transport.h"
#include "dist/zero1.h"
#include "kernels/hash.h"
#include "nn/linear.h"
#include "tests/support/compare.h"
#include "tests/support/mixed_run.h"
#include "tests/support/optim_training.h"

// What training on several ranks must give, whatever lies between them: bodies that each rank runs.

namespace athanor::test {

using dist::Communicator;
using dist::CommunicatorOptions;
using dist::Ddp;
using dist::Overlap;
using dist::Zero1;

/// Buckets small enough for a small model to have several.
inline constexpr dist::BucketOptions kSmallBuckets{.bucket_bytes = 700, .first_bucket_bytes = 100};

inline std::vector<CommunicatorOptions> training_algorithms(int world_size) {
  using dist::Algorithm;
  std::vector<CommunicatorOptions> all{{.algorithm = Algorithm::rank_order},
                                       {.algorithm = Algorithm::ring, .segment_bytes = 256}};
  for (const int size : {2, 4}) {
    if (size < world_size && world_size % size == 0)
      all.push_back({.algorithm = Algorithm::hierarchical, .node_size = size});
  }
  return all;
}

// ZeRO-1 and DDP --------------------------------------------------------------------------------------------

/// Options for the arena of a DDP or ZeRO-1 run.
template <class Sync>
ArenaOptions arena_options(const ArenaOptions& options, Communicator& comm,
                           const dist::BucketOptions& buckets = kSmallBuckets) {
  if constexpr (std::is_same_v<Sync, Zero1>) return dist::sharded(options, comm, buckets);
  return dist::bucketed(options, comm.world_size(), buckets);
}

struct ParallelRun {
  Precision precision = Precision::f32;
  bool f32_gradients = false;
  CommunicatorOptions comm{};
  Overlap overlap = Overlap::thread;
  int steps = 50;
  int micro_batches = 1;
  const char* optimizer = "adamw";  ///< of test::make_optimizer(); shards of whole parameters for "muon"
  bool overlap_gather = false;      ///< in ZeRO-1: forward passes begin before all weights are there
};

/// All that may differ between two runs.
struct ParallelResult {
  std::vector<std::uint64_t> hashes;  ///< of the masters, now and then
  std::vector<std::byte> weights;     ///< of the end
  std::vector<float> norms;           ///< of every step
  std::uint64_t average = 0;          ///< hash of the averages, at the end
  std::int64_t applied = 0, overflows = 0;
  bool operator==(const ParallelResult&) const = default;
};

/// Trains the mixed network with clipping; in step 7 one rank has an infinite pixel.
template <class Sync> ParallelResult parallel_run(dist::Transport& transport, const ParallelRun& options) {
  MixedNet net;
  const int world = transport.world_size(), rank = transport.rank();
  Communicator comm(transport, options.comm);
  ParameterArena arena(net.parameters(), net.buffers(),
                       arena_options<Sync>({.precision = options.precision,
                                            .device = transport.device(),
                                            .f32_gradients = options.f32_gradients},
                                           comm,
                                           {.bucket_bytes = kSmallBuckets.bucket_bytes,
                                            .first_bucket_bytes = kSmallBuckets.first_bucket_bytes,
                                            .whole_parameters = options.optimizer == std::string("muon")}));
  Sync sync(arena, comm, {.overlap = options.overlap});
  EXPECT_GE(sync.layout().buckets().size(), 3u);
  if constexpr (std::is_same_v<Sync, Zero1>) {
    if (options.overlap_gather) sync.overlap_gather(net);
  }
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(options.optimizer, arena);
  Ema ema(arena, {.decay = 0.9});
  ema.fuse_into(*optimizer);
  const LossScaling scaling =
      options.precision == Precision::f16 ? LossScaling{.initial = 1024} : LossScaling::fixed(1);
  const Device device = transport.device();
  StepBuffer step(device, {.seed = 1, .loss_scale = scaling.initial});
  ParallelResult result;
  for (int i = 0; i < options.steps; ++i) {
    const bool poisoned = i == 7 && rank == world / 2;
    const auto batch =
        detail::mixed_batch(i * world + rank, poisoned, compute_dtype(options.precision), device);
    arena.buffers().snapshot();
    arena.zero_grad();
    const float weight = dist::batch_weight(8, 8 * world * options.micro_batches);
    for (int micro = 1; micro < options.micro_batches; ++micro) {
      const auto early = detail::mixed_batch(1000 * micro + i * world + rank, false,
                                             compute_dtype(options.precision), device);
      const auto silent = sync.no_sync();
      backward_scaled(cross_entropy(net(early.images), early.labels), step, weight);
    }
    backward_scaled(cross_entropy(net(batch.images), batch.labels), step, weight);
    sync.reduce(step, {.max_norm = 0.5f});
    const StepState measured = step.read();
    result.norms.push_back(measured.found_inf ? -1 : measured.grad_norm);
    optimizer->set_learning_rates(step, schedules::cosine(0.01, 60));
    optimizer->step(step);
    ema.update(step);
    arena.buffers().restore_if_skipped(step);
    finish_step(step, scaling);
    if constexpr (std::is_same_v<Sync, Zero1>) sync.gather_weights();
    if (i % 10 == 9) result.hashes.push_back(sync.weights_hash());
  }
  sync.settle();
  for (const ParameterArena::Part& part : arena.parts()) {
    const auto bits = detail::bits_of(part.weights);
    result.weights.insert(result.weights.end(), bits.begin(), bits.end());
  }
  {
    EmaSwap average(ema);
    result.average = sync.weights_hash();
    average.end();
  }
  result.applied = step.read().applied_steps;
  result.overflows = step.read().overflow_steps;
  return result;
}

/// What every rank of a world has at the end.
template <class Sync>
std::vector<ParallelResult> run_all(int world, const ParallelRun& options,
                                    const dist::ThreadFaults& faults = {}) {
  std::vector<ParallelResult> results(static_cast<std::size_t>(world));
  dist::run_ranks(
      world,
      [&](dist::Transport& transport) {
        results[static_cast<std::size_t>(transport.rank())] = parallel_run<Sync>(transport, options);
      },
      faults);
  return results;
}

/// Each rank compares runs of its own; this, that all ranks come to the same end.
inline void expect_same_on_all(dist::Transport& transport, const ParallelResult& mine, const char* what) {
  kernels::HashOf hash;
  for (const std::byte byte : mine.weights) hash.add(static_cast<int>(byte));
  hash.add(mine.average);
  for (const std::uint64_t masters : mine.hashes) hash.add(masters);
  const std::uint64_t value = hash.value();
  Communicator comm(transport);
  dist::Exchange values(comm, sizeof value);
  std::memcpy(values.row(comm.rank()), &value, sizeof value);
  values.upload();
  values.run();
  for (int rank = 0; rank < comm.world_size(); ++rank)
    EXPECT_EQ(std::memcmp(values.row(rank), &value, sizeof value), 0) << what << ": rank " << rank;
}

/// The one that matters: every algorithm and precision, odd sizes, clipping, an overflow on one rank.
inline void check_zero1_equals_ddp_over(dist::Transport& transport, int steps,
                                        const char* optimizer = "adamw") {
  struct Kind {
    Precision precision;
    bool f32_gradients;
  };
  for (const CommunicatorOptions& comm : training_algorithms(transport.world_size())) {
    for (const Kind kind : {Kind{Precision::f32, false}, Kind{Precision::bf16, false},
                            Kind{Precision::bf16, true}, Kind{Precision::f16, false}}) {
      const ParallelRun options{.precision = kind.precision,
                                .f32_gradients = kind.f32_gradients,
                                .comm = comm,
                                .steps = steps,
                                .optimizer = optimizer};
      const ParallelResult ddp = parallel_run<Ddp>(transport, options);
      const ParallelResult zero1 = parallel_run<Zero1>(transport, options);
      const std::string which =
          fmt::format("{} {} {}", optimizer, name_of(comm.algorithm), name_of(compute_dtype(kind.precision)));
      EXPECT_TRUE(ddp == zero1) << which;
      expect_same_on_all(transport, ddp, which.c_str());
      expect_same_on_all(transport, zero1, which.c_str());
      EXPECT_EQ(ddp.hashes, zero1.hashes);
      EXPECT_EQ(ddp.norms, zero1.norms);
      // The infinite pixel, and in f16 what overflows besides.
      EXPECT_EQ(ddp.norms[7], -1);
      EXPECT_EQ(ddp.applied + ddp.overflows, options.steps);
      EXPECT_GE(ddp.applied, options.steps - 5);
    }
  }
}

inline void check_zero1_equals_ddp(dist::Transport& transport) {
  check_zero1_equals_ddp_over(transport, 50);
}

/// Who pushes the collectives does not matter.
inline void check_overlap_changes_nothing(dist::Transport& transport) {
  for (const CommunicatorOptions& comm : training_algorithms(transport.world_size())) {
    const auto run = [&](Overlap overlap) {
      return parallel_run<Ddp>(transport,
                               {.precision = Precision::bf16, .comm = comm, .overlap = overlap, .steps = 10});
    };
    const ParallelResult plain = run(Overlap::none);
    EXPECT_TRUE(run(Overlap::thread) == plain) << name_of(comm.algorithm);
    EXPECT_TRUE(run(Overlap::pumped) == plain) << name_of(comm.algorithm);
  }
}

// DDP and one rank ------------------------------------------------------------------------------------------

/// Two layers of small whole weights, odd sizes; `spare` is used only where asked for.
class WholeNet final : public nn::Module {
 public:
  explicit WholeNet(int offset = 0) {
    register_module("first", first);
    register_module("second", second);
    register_module("spare", spare);
    initialize(3);
    int at = offset;
    for (const Parameter& parameter : parameters()) {
      auto* values = parameter.tensor.template data<float>();
      for (std::int64_t i = 0; i < parameter.tensor.numel(); ++i)
        values[i] = static_cast<float>(at++ % 3 - 1);
    }
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = second(first(x));
    return use_spare ? y + spare(x) : y;
  }

  nn::Linear first{7, 11, {.activation = Activation::relu}}, second{11, 3}, spare{7, 3};
  bool use_spare = false;
};

/// Whole numbers; sample i of a data set.
inline Tensor whole_samples(std::int64_t first, std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = first * 7; i < (first + count) * 7; ++i)
    values.push_back(static_cast<float>((i * 5 + i / 3) % 5 - 2));
  return Tensor::from(values, {count, 7});
}

inline Tensor whole_loss(WholeNet& net, const Tensor& x) {
  return cast(sum(square(net(x.to(net.parameters()[0].tensor.device())))), DType::f32);
}

struct WholeModel {
  WholeNet net;
  ParameterArena arena;
  Sgd sgd;
  StepBuffer step;

  explicit WholeModel(int world_size, int offset = 0, const ArenaOptions& options = {})
      : net(offset),
        arena(net.parameters(), net.buffers(), dist::bucketed(options, world_size, kSmallBuckets)),
        sgd(arena, SgdOptions{.momentum = 0.5f, .weight_decay = 0.5f}),
        step(options.device) {}

  /// All there are. A zero is +0: one that is the product of a single sample may be -0, of a sum it is not.
  std::vector<float> gradients() const {
    std::vector<float> all;
    for (int i = 0; i < arena.size(); ++i) {
      if (!arena.has_gradient(i)) continue;
      const Tensor gradient = arena.gradient(i).to(kCpu);
      for (std::int64_t k = 0; k < gradient.numel(); ++k) all.push_back(gradient.data<float>()[k] + 0.0f);
    }
    return all;
  }
  void apply() {
    sgd.set_learning_rates(step, schedules::constant(0.25f));
    sgd.step(step);
    finish_step(step);
  }
};

/// P ranks on their samples, and one on all of them: gradients, norm and updated weights have the same bits.
inline void check_ddp_equals_one_rank(dist::Transport& transport) {
  const int world = transport.world_size(), rank = transport.rank();
  for (const CommunicatorOptions& options : training_algorithms(world)) {
    const ArenaOptions place{.device = transport.device()};
    WholeModel one(1, 0, place), many(world, 0, place);
    Communicator comm(transport, options);
    Ddp ddp(many.arena, comm);
    GradientMeter meter(one.arena);
    for (int batch = 0; batch < 3; ++batch) {
      // Ranks have different numbers of samples: r + 1 each, for some more.
      const std::int64_t first = batch * 100 + rank * (rank + 1) / 2, all = world * (world + 1) / 2;
      one.arena.zero_grad();
      backward_scaled(whole_loss(one.net, whole_samples(batch * 100, all)), one.step);
      meter.measure(one.step, {.max_norm = 64});
      many.arena.zero_grad();
      backward_scaled(whole_loss(many.net, whole_samples(first, rank + 1)), many.step);
      ddp.reduce(many.step, {.max_norm = 64});
      EXPECT_EQ(many.gradients(), one.gradients()) << name_of(options.algorithm);
      EXPECT_EQ(many.step.read().grad_norm, one.step.read().grad_norm);
      EXPECT_EQ(many.step.read().clip_coefficient, one.step.read().clip_coefficient);
    }
    one.apply();
    many.apply();
    EXPECT_EQ(many.arena.weights_hash(), one.arena.weights_hash()) << name_of(options.algorithm);
  }
}

/// Micro-batches add up, and travel with the last of them.
inline void check_accumulation_with(dist::Transport& transport, const CommunicatorOptions& algorithm,
                                    const ArenaOptions& precision) {
  const int world = transport.world_size(), rank = transport.rank();
  constexpr int kMicroBatches = 3;
  const DType compute = compute_dtype(precision.precision);
  WholeModel one(1, 0, precision), many(world, 0, precision);
  Communicator comm(transport, algorithm);
  Ddp ddp(many.arena, comm);
  for (int batch = 0; batch < 2; ++batch) {
    one.arena.zero_grad();
    backward_scaled(whole_loss(one.net, cast(whole_samples(batch * 100, 2 * world * kMicroBatches), compute)),
                    one.step);
    many.arena.zero_grad();
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      const auto samples = whole_samples(batch * 100 + 2 * (micro * world + rank), 2);
      const Tensor loss =
          whole_loss(many.net, cast(samples, compute));  // the forward pass is outside on purpose
      if (micro + 1 < kMicroBatches) {
        const auto silent = ddp.no_sync();
        backward_scaled(loss, many.step);
      } else {
        backward_scaled(loss, many.step);
      }
    }
    ddp.reduce(many.step);
    EXPECT_EQ(many.gradients(), one.gradients()) << name_of(algorithm.algorithm) << " " << name_of(compute);
  }
}

inline void check_accumulation_equals_one_rank(dist::Transport& transport) {
  check_accumulation_with(transport, {}, {});
}

/// With every algorithm, with half weights whose gradients are f32, and in ZeRO-1 as in DDP.
inline void check_accumulation_everywhere(dist::Transport& transport) {
  for (const CommunicatorOptions& comm : training_algorithms(transport.world_size())) {
    check_accumulation_with(transport, comm, {});
    check_accumulation_with(transport, comm, {.precision = Precision::bf16, .f32_gradients = true});
    const ParallelRun run{
        .precision = Precision::bf16, .f32_gradients = true, .comm = comm, .steps = 10, .micro_batches = 3};
    EXPECT_TRUE(parallel_run<Ddp>(transport, run) == parallel_run<Zero1>(transport, run))
        << name_of(comm.algorithm);
  }
}

/// Ranks that use different parameters end with the same gradients; what nobody uses is left alone.
inline void check_unused_parameters(dist::Transport& transport) {
  const int world = transport.world_size(), rank = transport.rank();
  const ArenaOptions place{.device = transport.device()};
  WholeModel model(world, 0, place);
  Communicator comm(transport);
  Ddp ddp(model.arena, comm);
  const auto pass = [&](bool use_spare) {
    model.net.use_spare = use_spare;
    model.arena.zero_grad();
    backward_scaled(whole_loss(model.net, whole_samples(rank * 4, 4)), model.step);
    ddp.reduce(model.step);
  };
  const std::vector<std::string> spare{"spare.weight", "spare.bias"};

  pass(true);
  EXPECT_TRUE(ddp.unused(world - 1).empty());
  // Gradients of this pass must not come back as those of a rank that has none.
  pass(rank == 0);
  EXPECT_TRUE(ddp.unused(0).empty());
  if (world > 1) {
    EXPECT_EQ(ddp.unused(world - 1), spare);
  }
  for (int i = 0; i < model.arena.size(); ++i) EXPECT_TRUE(model.arena.has_gradient(i)) << i;
  const Tensor mine = model.arena.parts()[0].gradients, of_rank_0 = empty_like(mine);
  of_rank_0.copy_bytes_from(mine);
  comm.run(*comm.broadcast(of_rank_0, 0));
  EXPECT_TRUE(same_bits(mine.to(kCpu), of_rank_0.to(kCpu)));
  {
    WholeModel alone(1, 0, place);
    alone.net.use_spare = true;
    alone.arena.zero_grad();
    backward_scaled(whole_loss(alone.net, whole_samples(0, 4)), alone.step);
    const int index = alone.arena.size() - 1;
    EXPECT_TRUE(same_bits(model.arena.gradient(index).to(kCpu), alone.arena.gradient(index).to(kCpu)));
  }

  pass(false);
  EXPECT_EQ(ddp.unused(0), spare);
  const auto before = detail::bits_of(model.net.spare.weight());
  const auto used_before = detail::bits_of(model.net.first.weight());
  model.apply();
  EXPECT_EQ(detail::bits_of(model.net.spare.weight()), before);  // in spite of weight decay
  EXPECT_NE(detail::bits_of(model.net.first.weight()), used_before);
}

/// Whatever the ranks begin with, they go on with what rank 0 has.
inline void check_ranks_begin_alike(dist::Transport& transport) {
  const ArenaOptions place{.device = transport.device()};
  WholeModel model(transport.world_size(), transport.rank(), place), of_rank_0(1, 0, place);
  Communicator comm(transport);
  const Ddp ddp(model.arena, comm);
  EXPECT_EQ(model.arena.weights_hash(), of_rank_0.arena.weights_hash());
}

}  // namespace athanor::test
