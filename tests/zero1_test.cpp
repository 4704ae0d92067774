#include "dist/zero1.h"

#include <array>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#include "dist/transports/thread_transport.h"
#include "optim/flat.h"
#include "tests/support/data_parallel_cases.h"

namespace athanor {
namespace {

using namespace std::chrono_literals;
using dist::BucketOptions;
using dist::run_ranks;
using dist::Transport;
using test::Communicator;
using test::Ddp;
using test::Overlap;
using test::ParallelResult;
using test::WholeModel;
using test::Zero1;

template <class Sync>
std::vector<ParallelResult> run_all(int world, const test::ParallelRun& options,
                                    const dist::ThreadFaults& faults = {}) {
  std::vector<ParallelResult> results(static_cast<std::size_t>(world));
  run_ranks(
      world,
      [&](Transport& transport) {
        results[static_cast<std::size_t>(transport.rank())] = test::parallel_run<Sync>(transport, options);
      },
      faults);
  return results;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Memory ---------------------------------------------------------------------------------------------------

std::int64_t peak(const char* tag) {
  return allocator_of(kCpu).stats().peak_by_tag[tag];
}

// What the allocator takes for a flat tensor.
std::int64_t taken(std::int64_t elements, DType dtype) {
  const Block block = allocator_of(kCpu).allocate(static_cast<std::size_t>(elements) * size_of(dtype) + 128);
  allocator_of(kCpu).free(block);
  return static_cast<std::int64_t>(block.bytes);
}

// Of one rank: what arrives of the largest bucket, once; the agreement of a step, which has a row of squares
// and flags for every rank, and the squares; and, while it is made, a hash of every rank.
std::int64_t comm_of(const ParameterArena& arena, const dist::BucketLayout& layout) {
  constexpr std::int64_t kVote = sizeof(dist::StopVote);
  const std::int64_t world = layout.world_size(), squares = 8 * std::ssize(layout.buckets());
  std::int64_t largest = 0;
  for (const auto& bucket : layout.buckets())
    largest =
        std::max(largest, bucket.range.count() * static_cast<std::int64_t>(size_of(arena.gradient_dtype(0))));
  return taken(largest, DType::u8) +
         taken(world * (squares + align_elements(arena.size() + kVote, 8)), DType::u8) +
         taken(world * squares, DType::u8) + taken(world * 8, DType::u8);
}

// At no moment is there more than one set of masters, of state and of averages among all ranks: their peaks
// are the formula of dist/zero1.h, to the byte, and so is that of what arrives.
TEST(ZeroOne, MemoryIsTheFormulaAtItsPeak) {
  constexpr std::int64_t kSizes[] = {10007, 7001, 501, 3};  // no number of ranks divides them
  for (const Precision precision : {Precision::bf16, Precision::f32}) {
    for (int world = 1; world <= 8; ++world) {
      const DType compute = compute_dtype(precision);
      const BucketOptions buckets{.bucket_bytes = 16000, .first_bucket_bytes = 1000};
      allocator_of(kCpu).reset_peak();
      const std::int64_t weights = peak("weights"), gradients = peak("gradients"), masters = peak("masters"),
                         averages = peak("ema"), state = peak("optimizer"), comm_before = peak("comm");
      std::int64_t comm_expected = 0;
      std::int64_t padded = 0, state_expected = 0;
      std::mutex mutex;
      run_ranks(world, [&](Transport& transport) {
        std::vector<Parameter> parameters;
        for (const std::int64_t size : kSizes) {
          parameters.push_back({fmt::format("p{}", size), Tensor::zeros({size})});
          require_grad(parameters.back().tensor);
        }
        Communicator comm(transport);
        ParameterArena arena(parameters, {}, dist::sharded({.precision = precision}, comm, buckets));
        const Zero1 zero1(arena, comm);
        const std::int64_t own_comm = comm_of(arena, zero1.layout());
        const Adam adam(arena);
        const Ema ema(arena);
        EXPECT_GE(zero1.layout().buckets().size(), 3u);
        comm.run(*comm.barrier());  // all ranks have everything, at one time
        std::int64_t mine = 0;
        for (int i = 0; i < arena.size(); ++i) mine += align_elements(arena.owned_elements(i), 32);
        const std::lock_guard lock(mutex);
        padded = arena.parts()[0].size;
        comm_expected += own_comm;
        EXPECT_EQ(arena.kept(0), padded / world);
        EXPECT_LE(mine, arena.kept(0));
        // Two moments; and for Adam and Ema each, what tells their kernels where parameters lie.
        std::int64_t chunks = 0;
        for (const std::int64_t size : kSizes)
          chunks += (size + kernels::kUpdateChunk - 1) / kernels::kUpdateChunk;
        const Block table =
            allocator_of(kCpu).allocate(static_cast<std::size_t>(chunks) * sizeof(kernels::UpdateRange));
        allocator_of(kCpu).free(table);
        state_expected +=
            2 * taken(mine, DType::f32) + 2 * (static_cast<std::int64_t>(table.bytes) + taken(4, DType::i64));
      });
      const std::string which = fmt::format("{} ranks, {}", world, name_of(precision));
      EXPECT_EQ(peak("weights") - weights, world * taken(padded, compute)) << which;
      EXPECT_EQ(peak("gradients") - gradients, world * taken(padded, compute)) << which;
      EXPECT_EQ(peak("masters") - masters,
                precision == Precision::f32 ? 0 : world * taken(padded / world, DType::f32))
          << which;
      EXPECT_EQ(peak("ema") - averages, world * taken(padded / world, DType::f32)) << which;
      EXPECT_EQ(peak("optimizer") - state, state_expected) << which;
      EXPECT_EQ(peak("comm") - comm_before, comm_expected) << which;
    }
  }
}

// What it refuses ------------------------------------------------------------------------------------------

TEST(ZeroOne, RefusesArenasShardedOtherwise) {
  run_ranks(2, [](Transport& transport) {
    Communicator comm(transport),
        ring(transport, {.algorithm = dist::Algorithm::hierarchical, .node_size = 2});
    test::MixedNet plain, other, third;
    ParameterArena whole(plain.parameters(), plain.buffers(), dist::bucketed({}, 2, test::kSmallBuckets));
    EXPECT_NE(error_of([&] { Zero1(whole, comm); }).find("dist::sharded()"), std::string::npos);
    ParameterArena mine(other.parameters(), other.buffers(), dist::sharded({}, comm, test::kSmallBuckets));
    EXPECT_NE(error_of([&] { Ddp(mine, comm); }).find("dist::bucketed()"), std::string::npos);
    EXPECT_THROW((void)mine.master(0), ArgumentError);
    EXPECT_THROW((void)mine.weights_hash(), ArgumentError);
    // Of a communicator whose pieces lie elsewhere.
    ParameterArena half(third.parameters(), third.buffers(), dist::sharded({}, comm, test::kSmallBuckets));
    if (transport.world_size() == 2) {
      const std::string error = error_of([&] {
        const ParameterArena::Owned& owned = half.owned()[0];
        test::MixedNet fourth;
        ParameterArena odd(fourth.parameters(), fourth.buffers(), [&] {
          ArenaOptions options = dist::bucketed({}, 2, test::kSmallBuckets);
          options.keep = [&](const ParameterArena&) {
            return std::vector<ArenaRange>{{owned.part, owned.begin, owned.end + 32}};
          };
          return options;
        }());
        const Zero1 zero1(odd, comm);
      });
      EXPECT_NE(error.find("sharded for this communicator"), std::string::npos) << error;
    }
  });
}

TEST(ZeroOne, RanksThatDifferAreNamedWhenTheArenaIsMade) {
  run_ranks(3, [](Transport& transport) {
    nn::Linear layer(7, transport.rank() == 2 ? 2 : 1);
    layer.initialize(1);
    Communicator comm(transport);
    const std::string error =
        error_of([&] { ParameterArena(layer.parameters(), {}, dist::sharded({}, comm)); });
    EXPECT_EQ(
        error,
        "zero1: all ranks must have the same parameters, precision and settings, but rank 2 differs from "
        "rank 0");
  });
}

// Whatever ranks begin with, masters are those of rank 0, to the last bit of f32.
TEST(ZeroOne, MastersBeginAsThoseOfRank0) {
  run_ranks(3, [](Transport& transport) {
    Communicator comm(transport);
    nn::Linear layer(17, 5), of_rank_0(17, 5);
    layer.initialize(static_cast<std::uint64_t>(transport.rank() + 1));
    of_rank_0.initialize(1);
    ParameterArena arena(layer.parameters(), {},
                         dist::sharded({.precision = Precision::bf16}, comm, test::kSmallBuckets));
    Zero1 zero1(arena, comm);
    const ParameterArena expected(of_rank_0.parameters(), {}, Precision::bf16, kCpu);
    EXPECT_EQ(zero1.weights_hash(), expected.weights_hash());
  });
}

// Gathering while the next forward pass runs ---------------------------------------------------------------

TEST(ZeroOne, OverlappedGathersChangeNoBit) {
  for (const auto& comm : test::training_algorithms(4)) {
    test::ParallelRun run{.precision = Precision::bf16, .comm = comm, .steps = 12};
    const ParallelResult plain = run_all<Zero1>(4, run)[0];
    run.overlap_gather = true;
    for (const Overlap overlap : {Overlap::thread, Overlap::pumped, Overlap::none}) {
      run.overlap = overlap;
      for (const auto delay : {0us, 300us}) {
        for (const ParallelResult& result : run_all<Zero1>(4, run, {.delay = delay, .seed = 3}))
          EXPECT_TRUE(result == plain) << name_of(comm.algorithm) << " " << delay.count();
      }
    }
  }
}

void wait_until(const std::atomic<bool>& flag) {
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (!flag && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(flag);
}

// Each rank's gather returns although the other has not begun: nothing has travelled yet.
TEST(ZeroOne, AGatherReturnsBeforeTheWeightsAreThere) {
  for (const Overlap overlap : {Overlap::thread, Overlap::pumped, Overlap::none}) {
    std::atomic<bool> returned{false};
    run_ranks(2, [&](Transport& transport) {
      Communicator comm(transport);
      WholeModel model(2, 0, dist::sharded({}, comm, test::kSmallBuckets));
      Zero1 zero1(model.arena, comm, {.overlap = overlap});
      zero1.overlap_gather(model.net);
      if (transport.rank() == 1) wait_until(returned);
      zero1.gather_weights();
      returned = true;
      (void)model.net(test::whole_samples(0, 2));
      zero1.settle();
    });
  }
}

// Rank 0 reads them before rank 1 has sent any: what is under way stays so, and nobody writes what it reads.
TEST(ZeroOne, WeightsReadBehindItsBackAreAnError) {
  for (const Overlap overlap : {Overlap::thread, Overlap::pumped, Overlap::none}) {
    std::atomic<bool> read{false};
    run_ranks(2, [&](Transport& transport) {
      Communicator comm(transport);
      WholeModel model(2, 0, dist::sharded({}, comm, test::kSmallBuckets));
      Zero1 zero1(model.arena, comm, {.overlap = overlap});
      zero1.overlap_gather(model.net);
      EXPECT_THROW(zero1.overlap_gather(model.net), ArgumentError);
      if (transport.rank() == 1) wait_until(read);
      zero1.gather_weights();
      if (transport.rank() == 0) {
        model.arena.zero_grad();
        const std::string error = error_of([&] { (void)model.net.first.forward(test::whole_samples(0, 2)); });
        EXPECT_EQ(error.find("zero1: a forward pass must wait for weights, but first.weight was read"), 0u)
            << error;
        read = true;
      }
      zero1.settle();
      // A model that lacks some of the parameters.
      WholeModel other(2, 0, dist::sharded({}, comm, test::kSmallBuckets));
      Zero1 second(other.arena, comm, {.overlap = overlap});
      EXPECT_NE(error_of([&] { second.overlap_gather(other.net.first); }).find("lacks second.weight"),
                std::string::npos);
    });
  }
}

// A model that is not yet trusted: gathers are waited for until a step has shown calls.
TEST(ZeroOne, AStepShowsWhetherWeightsAreReadInCalls) {
  for (const bool by_calls : {true, false}) {
    for (const Overlap overlap : {Overlap::thread, Overlap::pumped, Overlap::none}) {
      std::atomic<bool> read{false};
      run_ranks(2, [&](Transport& transport) {
        Communicator comm(transport);
        WholeModel model(2, 0, dist::sharded({}, comm, test::kSmallBuckets));
        Zero1 zero1(model.arena, comm, {.overlap = overlap});
        zero1.overlap_gather(model.net, Zero1::Trust::after_a_step);
        const auto under_way = [&] {
          return !error_of([&] { transport.session().check_free("test"); }).empty();
        };
        const auto step = [&](bool calls, bool after_its_reading = false) {
          const Tensor x = test::whole_samples(0, 2);
          model.arena.zero_grad();
          const Tensor y = calls ? model.net(x) : model.net.second.forward(model.net.first(x));
          backward_scaled(cast(sum(y), DType::f32), model.step);
          zero1.reduce(model.step);
          model.apply();
          EXPECT_FALSE(zero1.gathered());
          if (after_its_reading && transport.rank() == 1) wait_until(read);
          zero1.gather_weights();
          EXPECT_TRUE(zero1.gathered());
        };
        {
          const NoGrad no_grad;
          (void)model.net(test::whole_samples(0, 2));  // a call, but nothing that is recorded
        }
        zero1.gather_weights();  // no step has been seen
        EXPECT_FALSE(under_way());
        for (int i = 0; i < 3; ++i) {
          step(by_calls, by_calls && i == 2);
          EXPECT_EQ(under_way(), by_calls) << i;
        }
        if (by_calls && transport.rank() == 0) {  // once trusted, it must go on so
          EXPECT_NE(error_of([&] {
                      (void)model.net.first.forward(test::whole_samples(0, 2));
                    }).find("first.weight was read while they were being gathered"),
                    std::string::npos);
          read = true;
        } else if (!by_calls) {
          step(true);
          EXPECT_FALSE(under_way());
        }
        zero1.settle();
        zero1.end_overlap();
        zero1.gather_weights();
        EXPECT_FALSE(under_way());
        (void)model.net.first.forward(test::whole_samples(0, 2));  // nothing is left of it
      });
    }
  }
}

// A gather that nobody waited for ends with its owner, and the network is free again.
TEST(ZeroOne, TheLastGatherEndsWithIt) {
  run_ranks(2, [](Transport& transport) {
    Communicator comm(transport);
    WholeModel model(2, 0, dist::sharded({}, comm, test::kSmallBuckets));
    alignas(Zero1) std::array<std::byte, sizeof(Zero1)> place;
    auto* const zero1 = new (place.data()) Zero1(model.arena, comm);
    zero1->overlap_gather(model.net);
    zero1->gather_weights();
    EXPECT_THROW(comm.run(*comm.barrier()), ArgumentError);
    zero1->~Zero1();
    place.fill(std::byte{0xff});
    comm.run(*comm.barrier());
    (void)model.net(test::whole_samples(0, 2));  // a hook that is left would find nothing there
  });
}

// A part of the arena with no elements has no bucket: there is nothing to send, and nothing to wait for.
class Hollow final : public nn::Module {
 public:
  Hollow() {
    register_module("linear", linear);
    nothing = register_parameter("nothing", Tensor::zeros({0}), {.keep_f32 = true});
    initialize(1);
  }
  Tensor forward(const Tensor& x) override { return linear(x) + cast(sum(nothing), x.dtype()); }

  nn::Linear linear{7, 3};
  Tensor nothing;
};

template <class Sync> void train_hollow(Transport& transport, Overlap overlap) {
  Communicator comm(transport);
  Hollow net;
  ParameterArena arena(net.parameters(), {},
                       test::arena_options<Sync>({.precision = Precision::bf16}, comm, test::kSmallBuckets));
  Sync sync(arena, comm, {.overlap = overlap});
  Adam adam(arena);
  StepBuffer step(kCpu, {.seed = 1});
  if constexpr (std::is_same_v<Sync, Zero1>) sync.overlap_gather(net);
  for (int i = 0; i < 3; ++i) {
    arena.zero_grad();
    const Tensor x = cast(test::whole_samples(0, 2), DType::bf16);
    backward_scaled(cast(sum(square(net(x))), DType::f32), step);
    sync.reduce(step);
    adam.set_learning_rates(step, schedules::constant(0.01f));
    adam.step(step);
    finish_step(step);
    if constexpr (std::is_same_v<Sync, Zero1>) sync.gather_weights();
  }
  sync.settle();
  EXPECT_EQ(sync.unused(0), std::vector<std::string>());
  EXPECT_EQ(step.read().applied_steps, 3);
}

TEST(GradientSync, APartOfEmptyParametersIsNothing) {
  for (const Overlap overlap : {Overlap::thread, Overlap::pumped, Overlap::none}) {
    run_ranks(2, [&](Transport& transport) { train_hollow<Ddp>(transport, overlap); });
    run_ranks(2, [&](Transport& transport) { train_hollow<Zero1>(transport, overlap); });
  }
}

// Whole parameters -----------------------------------------------------------------------------------------

TEST(ZeroOne, MuonEqualsDdpBitForBit) {
  for (const int world : {1, 2, 3, 4}) {
    for (const auto& comm : test::training_algorithms(world)) {
      for (const Precision precision : {Precision::f32, Precision::bf16}) {
        const test::ParallelRun run{.precision = precision, .comm = comm, .steps = 12, .muon = true};
        const auto ddp = run_all<Ddp>(world, run), zero1 = run_all<Zero1>(world, run);
        for (std::size_t rank = 0; rank < ddp.size(); ++rank) {
          EXPECT_TRUE(ddp[rank] == zero1[rank])
              << world << " ranks, " << name_of(comm.algorithm) << ", " << name_of(precision);
          EXPECT_EQ(ddp[rank].hashes, zero1[0].hashes);
        }
        EXPECT_GE(ddp[0].applied, 9);
      }
    }
  }
}

TEST(ZeroOne, MuonNeedsWholeParameters) {
  run_ranks(3, [](Transport& transport) {
    Communicator comm(transport);
    test::MixedNet net;
    ParameterArena arena(net.parameters(), net.buffers(), dist::sharded({}, comm, test::kSmallBuckets));
    const Zero1 zero1(arena, comm);
    const std::string error = error_of([&] { test::make_optimizer(arena, true); });
    EXPECT_NE(error.find("whole_parameters"), std::string::npos) << error;
  });
}

// Shards end where parameters end, tile every bucket, and come to about the same number of elements.
TEST(ZeroOne, WholeParametersAreShared) {
  for (const int world : {1, 2, 3, 4, 8}) {
    for (const auto& options : test::training_algorithms(world)) {
      for (const std::size_t bucket_bytes : {20'000u, 400u}) {  // several parameters in one, and each its own
        std::vector<Parameter> parameters;
        std::int64_t largest = 0, all = 0;
        for (int i = 0; i < 40; ++i) {
          const std::int64_t size = 100 + 37 * (i * i % 23);
          largest = std::max(largest, size);
          all += size;
          parameters.push_back({fmt::format("p{}", i), Tensor::zeros({size})});
        }
        const ParameterArena arena(parameters, {},
                                   dist::bucketed({}, world,
                                                  {.bucket_bytes = bucket_bytes,
                                                   .first_bucket_bytes = bucket_bytes,
                                                   .whole_parameters = true}));
        const dist::BucketLayout layout(arena, world, options);
        EXPECT_GE(layout.buckets().size(), 3u);
        std::vector<std::int64_t> load(static_cast<std::size_t>(world));
        for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
          for (const int i : layout.buckets()[b].parameters) {
            int owners = 0;
            for (int rank = 0; rank < world; ++rank) {
              const dist::Range shard = layout.shard(static_cast<int>(b), rank);
              const ParameterArena::Slice& slice = arena.slice(i);
              const bool inside = slice.begin >= shard.begin && slice.begin + slice.count <= shard.end;
              owners += inside;
              if (inside) load[static_cast<std::size_t>(rank)] += slice.count;
            }
            EXPECT_EQ(owners, 1) << i;
          }
          std::int64_t covered = 0;
          for (int rank = 0; rank < world; ++rank) covered += layout.shard(static_cast<int>(b), rank).count();
          EXPECT_EQ(covered, layout.buckets()[b].range.count());
        }
        for (const std::int64_t elements : load)
          EXPECT_NEAR(static_cast<double>(elements), static_cast<double>(all) / world,
                      static_cast<double>(largest))
              << world << " ranks, " << name_of(options.algorithm) << ", " << bucket_bytes;
      }
    }
  }
}

}  // namespace
}  // namespace athanor
