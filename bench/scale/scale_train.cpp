// The real training step on many ranks, with data: a small network learns the digits under DDP and under
// ZeRO-1, with every algorithm, and all bits are compared. Half the point is world sizes that no machine at
// hand has: run by smpirun, with ranks that are simulated and sums that are not. mpirun does as well.
//
//     scale_train --steps 12 --node-size 8
//
// bf16 with f32 masters, AdamW, clipping; on one rank one pixel of the third step is infinite, and all ranks
// must skip it. After every step the weights of all ranks are compared, and an all-reduce of whole numbers is
// compared with their sum. Ends with 1 where bits differ.
#include <cstdio>
#include <exception>
#include <limits>
#include <map>
#include <type_traits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "athanor.h"
#include "autograd/loss.h"
#include "autograd/shape.h"
#include "bench/scale/machine.h"
#include "data/digits.h"
#include "data/loader.h"
#include "data/preprocess.h"
#include "dist/ddp.h"
#include "dist/transports/mpi_transport.h"
#include "dist/zero1.h"
#include "kernels/cpu/context.h"
#include "kernels/hash.h"
#include "nn/models/model.h"
#include "optim/adam.h"
#include "optim/schedule.h"

namespace {

using namespace athanor;
using dist::Algorithm;

constexpr int kPoisonedStep = 2;

struct Options {
  int steps = 12;
  int samples_per_rank = 4;
  int node_size = 1;
  std::vector<Algorithm> algorithms{Algorithm::ring, Algorithm::rank_order};
};

struct Result {
  std::uint64_t hash = 0;  ///< of the masters
  double loss = 0;         ///< of rank 0's samples in the last step
  std::int64_t applied = 0, skipped = 0;
  bool alike = true;  ///< all ranks had the same weights after every step
};

std::uint64_t hash_of_weights(const ParameterArena& arena) {
  kernels::HashOf hash;
  for (const ParameterArena::Part& part : arena.parts()) {
    const auto* bytes = reinterpret_cast<const std::uint16_t*>(part.weights.raw_data());
    for (std::size_t i = 0; i < part.weights.bytes() / 2; ++i) hash.add(bytes[i]);
  }
  return hash.value();
}

bool alike(dist::Communicator& comm, std::uint64_t mine) {
  const Tensor all = Tensor::zeros({comm.world_size()}, {DType::i64, kCpu});
  auto* values = all.data<std::int64_t>();
  values[comm.rank()] = static_cast<std::int64_t>(mine);
  comm.run(*comm.all_gather_small(all));
  bool same = true;
  for (int rank = 0; rank < comm.world_size(); ++rank) same = same && values[rank] == values[0];
  return same;
}

// Whole numbers: their sum is the same in every order, and exact.
bool sums_are_right(dist::Communicator& comm) {
  constexpr std::int64_t kCount = 10'007;
  const auto value = [](std::int64_t rank, std::int64_t i) {
    return static_cast<float>((rank * 31 + i * 7) % 17 - 8);
  };
  const Tensor all = Tensor::zeros({kCount});
  auto* values = all.data<float>();
  for (std::int64_t i = 0; i < kCount; ++i) values[i] = value(comm.rank(), i);
  comm.run(*comm.all_reduce(all));
  bool right = true;
  for (std::int64_t i = 0; i < kCount; ++i) {
    float sum = 0;
    for (int rank = 0; rank < comm.world_size(); ++rank) sum += value(rank, i);
    right = right && values[i] == sum;
  }
  return scale::max_over_ranks(right ? 0 : 1) == 0;
}

template <class Sync> Result train(dist::Transport& transport, Algorithm algorithm, const Options& options) {
  const int world = transport.world_size(), rank = transport.rank();
  const auto data = digits(Split::train);
  Loader loader(*data, {.batch_size = std::int64_t{options.samples_per_rank} * world,
                        .shuffle = true,
                        .drop_last = true,
                        .seed = 3,
                        .workers = 0,
                        .rank = rank,
                        .world_size = world});
  const Preprocess preprocess(data->spec(), {.mean = {0.3}, .stddev = {0.4}}, DType::bf16, kCpu);
  const auto model = nn::make_model("digits_cnn", {}, 7);
  dist::Communicator comm(transport, {.algorithm = algorithm, .node_size = options.node_size});
  const ArenaOptions bf16{.precision = Precision::bf16};
  const dist::BucketOptions buckets{.bucket_bytes = 16 << 10, .first_bucket_bytes = 2 << 10};
  constexpr bool kSharded = std::is_same_v<Sync, dist::Zero1>;
  ParameterArena arena(model->parameters(), model->buffers(),
                       kSharded ? dist::sharded(bf16, comm, buckets) : dist::bucketed(bf16, world, buckets));
  Sync sync(arena, comm, {.overlap = dist::Overlap::pumped});
  AdamW adam(arena, AdamWOptions{.weight_decay = 0.01f});
  StepBuffer step(kCpu, {.seed = 1});
  Result result;
  Batch batch;
  std::int64_t epoch = 0;
  for (int i = 0; i < options.steps; ++i) {
    while (!loader.next(batch)) loader.start_epoch(++epoch);
    Tensor images = preprocess(batch, epoch, true);
    if (i == kPoisonedStep && rank == world / 2)
      images.data<BFloat16>()[0] = BFloat16(std::numeric_limits<float>::infinity());
    arena.buffers().snapshot();
    arena.zero_grad();
    const Tensor loss = cross_entropy((*model)(images), batch.labels);
    backward_scaled(loss, step,
                    dist::batch_weight(batch.size(), std::int64_t{options.samples_per_rank} * world));
    sync.reduce(step, {.max_norm = 1.0f});
    adam.set_learning_rates(step, schedules::constant(0.01));
    adam.step(step);
    arena.buffers().restore_if_skipped(step);
    finish_step(step);
    if constexpr (kSharded) sync.gather_weights();
    result.loss = loss.item();
    result.alike = alike(comm, hash_of_weights(arena)) && result.alike;
  }
  result.hash = sync.weights_hash();
  result.applied = step->applied_steps;
  result.skipped = step->overflow_steps;
  return result;
}

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app("Trains with DDP and ZeRO-1 on many ranks and compares them bit for bit");
  const std::map<std::string, Algorithm> algorithms{{"ring", Algorithm::ring},
                                                    {"hierarchical", Algorithm::hierarchical},
                                                    {"rank_order", Algorithm::rank_order}};
  app.add_option("--steps", options.steps)->check(CLI::Range(kPoisonedStep + 2, 1000000));
  app.add_option("--samples", options.samples_per_rank, "samples per rank and step")
      ->check(CLI::Range(1, 1000));
  app.add_option("--node-size", options.node_size, "ranks per node, for hierarchical");
  app.add_option("--algorithm", options.algorithms)->transform(CLI::CheckedTransformer(algorithms));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return options;
}

int run(dist::Transport& transport, const Options& options) {
  const int world = transport.world_size();
  int status = 0;
  for (const Algorithm algorithm : options.algorithms) {
    const Result ddp = train<dist::Ddp>(transport, algorithm, options);
    const Result zero1 = train<dist::Zero1>(transport, algorithm, options);
    const bool same = ddp.hash == zero1.hash && ddp.loss == zero1.loss && ddp.alike && zero1.alike;
    const bool skipped = ddp.skipped == 1 && zero1.skipped == 1 && ddp.applied == options.steps - 1 &&
                         zero1.applied == options.steps - 1;
    dist::Communicator comm(transport, {.algorithm = algorithm, .node_size = options.node_size});
    const bool right = sums_are_right(comm);
    if (!same || !skipped || !right) status = 1;
    const char* verdict = !right ? "wrong sums" : same ? "equal" : "differs";
    if (transport.rank() != 0) continue;
    fmt::print("train\t{}\t{}\t{:016x}\t{:016x}\t{:.4f}\t{}\t{}\n", world, name_of(algorithm), ddp.hash,
               zero1.hash, ddp.loss, skipped ? "skipped" : "not skipped", verdict);
    std::fflush(stdout);
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  cpu_context().set_threads(1);
  dist::MpiTransport transport({.wait_inside = scale::simulated()});
  try {
    return run(transport, options);
  } catch (const std::exception& error) {  // while the transport lives, which would end all ranks in silence
    scale::fail("scale_train", transport.rank(), error.what());
  }
}
