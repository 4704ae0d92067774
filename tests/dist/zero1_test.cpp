#include "dist/zero1.h"

#include <new>

#include "dist/transports/thread_transport.h"
#include "optim/flat.h"
#include "tests/support/data_parallel_cases.h"
#include "tests/support/errors.h"

namespace athanor::zero1_test {

using dist::BucketOptions;
using dist::run_ranks;
using dist::Transport;
using test::Communicator;
using test::Ddp;
using test::Zero1;

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
    largest = std::max(
        largest, bucket.range.count() * static_cast<std::int64_t>(size_of(arena.parts()[0].gradient_dtype)));
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
        for (int i = 0; i < arena.size(); ++i) mine += align_elements(arena.shards().elements(i), 32);
        const std::lock_guard lock(mutex);
        padded = arena.parts()[0].size;
        comm_expected += own_comm;
        EXPECT_EQ(arena.shards().size(0), padded / world);
        EXPECT_LE(mine, arena.shards().size(0));
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
    EXPECT_ERROR(ArgumentError, Zero1(whole, comm), "dist::sharded()");
    ParameterArena mine(other.parameters(), other.buffers(), dist::sharded({}, comm, test::kSmallBuckets));
    EXPECT_ERROR(ArgumentError, Ddp(mine, comm), "dist::bucketed()");
    EXPECT_THROW((void)mine.master(0), ArgumentError);
    EXPECT_THROW((void)mine.weights_hash(), ArgumentError);
    // Of a communicator whose pieces lie elsewhere.
    ParameterArena half(third.parameters(), third.buffers(), dist::sharded({}, comm, test::kSmallBuckets));
    if (transport.world_size() == 2) {
      const Shards::Owned& owned = half.shards().owned()[0];
      test::MixedNet fourth;
      ParameterArena odd(fourth.parameters(), fourth.buffers(), [&] {
        ArenaOptions options = dist::bucketed({}, 2, test::kSmallBuckets);
        options.keep = [&](const ArenaLayout&) {
          return std::vector<ArenaRange>{{owned.part, owned.begin, owned.end + 32}};
        };
        return options;
      }());
      EXPECT_ERROR(ArgumentError, Zero1(odd, comm), "zero1",
                   fmt::format("[{}, {})", owned.begin, owned.end + 32));
    }
  });
}

TEST(ZeroOne, MismatchedRanksAreNamedAtArenaCreation) {
  run_ranks(3, [](Transport& transport) {
    nn::Linear layer(7, transport.rank() == 2 ? 2 : 1);
    layer.initialize(1);
    Communicator comm(transport);
    EXPECT_ERROR(ArgumentError, ParameterArena(layer.parameters(), {}, dist::sharded({}, comm)), "zero1",
                 "rank 2", "rank 0");
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
    const ParameterArena expected(of_rank_0.parameters(), {}, {.precision = Precision::bf16});
    EXPECT_EQ(zero1.weights_hash(), expected.weights_hash());
  });
}

// Whole parameters -----------------------------------------------------------------------------------------

TEST(ZeroOne, MuonNeedsWholeParameters) {
  run_ranks(3, [](Transport& transport) {
    Communicator comm(transport);
    test::MixedNet net;
    ParameterArena arena(net.parameters(), net.buffers(), dist::sharded({}, comm, test::kSmallBuckets));
    const Zero1 zero1(arena, comm);
    EXPECT_ERROR(ArgumentError, test::make_optimizer("muon", arena), "BucketOptions::whole_parameters");
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
              const ArenaLayout::Slice& slice = arena.slice(i);
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

}  // namespace athanor::zero1_test
