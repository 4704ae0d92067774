#include <atomic>
#include <chrono>

#include "dist/transports/thread_transport.h"
#include "tests/support/data_parallel_cases.h"
#include "tests/support/errors.h"
#include "tests/support/joined_training.h"

namespace athanor::data_parallel_test {

using namespace std::chrono_literals;
using dist::run_ranks;
using dist::ThreadJob;
using dist::Transport;
using test::Communicator;
using test::Ddp;
using test::Overlap;
using test::WholeModel;
using test::Zero1;

constexpr int kWorlds[] = {1, 2, 3, 4, 8};

TEST(ZeroOne, EqualsDdpBitForBit) {
  for (const int world : {1, 2, 3}) run_ranks(world, test::check_zero1_equals_ddp);
}
// Optimizers that share parameters out, whole ones or by element.
TEST(ZeroOne, EqualsDdpBitForBitWithEveryOptimizer) {
  for (const char* const optimizer : {"momentum", "muon"}) {
    for (const int world : {2, 3, 4}) {
      run_ranks(world,
                [&](Transport& transport) { test::check_zero1_equals_ddp_over(transport, 12, optimizer); });
    }
  }
}
void check_more_ranks(int steps) {
  for (const int world : {4, 8}) {
    run_ranks(world, [&](Transport& transport) { test::check_zero1_equals_ddp_over(transport, steps); });
  }
}
// The infinite pixel comes in the eighth step.
TEST(ZeroOne, EqualsDdpBitForBitOnMoreRanks) {
  check_more_ranks(12);
}
// Alone it would catch a difference that takes long to reach a weight's bits.
TEST(ZeroOne, ExhaustiveEqualsDdpBitForBitOnMoreRanks) {
  check_more_ranks(50);
}

TEST(ZeroOne, DelaysChangeNoBit) {
  for (const auto& comm : test::training_algorithms(4)) {
    std::vector<test::ParallelResult> results;
    for (const auto delay : {0us, 400us}) {
      std::vector<test::ParallelResult> of(4);
      run_ranks(4,
                [&](Transport& transport) {
                  of[static_cast<std::size_t>(transport.rank())] = test::parallel_run<Zero1>(
                      transport, {.precision = Precision::bf16, .comm = comm, .steps = 12});
                },
                {.delay = delay, .seed = 5});
      for (const auto& result : of)
        EXPECT_TRUE(result.hashes == of[0].hashes && result.weights == of[0].weights);
      results.push_back(of[0]);
    }
    EXPECT_TRUE(results[0] == results[1]) << name_of(comm.algorithm);
  }
}

TEST(DistributedDataParallel, EqualsOneRankOnTheJoinedBatch) {
  for (const int world : kWorlds) run_ranks(world, test::check_ddp_equals_one_rank);
}
TEST(DistributedDataParallel, AccumulationEqualsOneRankOnTheJoinedBatch) {
  for (const int world : kWorlds) run_ranks(world, test::check_accumulation_equals_one_rank);
}
// Real numbers: the parameters within 1e-6 after a step, the loss within 1e-3 for 50, the ranks' bits equal.
TEST(DistributedDataParallel, RealTrainingEqualsOneRankOnTheJoinedBatch) {
  for (const int world : kWorlds)
    run_ranks(world, [](Transport& t) { test::check_training_equals_one_rank<Ddp>(t, false); });
}
TEST(ZeroOne, RealTrainingEqualsOneRankOnTheJoinedBatch) {
  for (const int world : {2, 4})
    run_ranks(world, [](Transport& t) { test::check_training_equals_one_rank<Zero1>(t, false); });
}
TEST(DistributedDataParallel, UnusedParametersJoinWithZeros) {
  for (const int world : kWorlds) run_ranks(world, test::check_unused_parameters);
}
TEST(DistributedDataParallel, RanksStartWithEqualWeights) {
  for (const int world : kWorlds) run_ranks(world, test::check_ranks_begin_alike);
}
TEST(DistributedDataParallel, AnyThreadMayAdvanceBuckets) {
  for (const int world : {1, 2, 4}) run_ranks(world, test::check_overlap_changes_nothing);
}

TEST(DistributedDataParallel, MismatchedRanksAreNamed) {
  run_ranks(3, [](Transport& transport) {
    // 7 x 2 on rank 2, 7 x 1 elsewhere.
    nn::Linear layer(7, transport.rank() == 2 ? 2 : 1);
    layer.initialize(1);
    ParameterArena arena(layer.parameters(), {}, dist::bucketed({}, 3));
    Communicator comm(transport);
    EXPECT_ERROR(ArgumentError, Ddp(arena, comm), "ddp", "rank 2", "rank 0");
  });
}

TEST(DistributedDataParallel, ASecondBackwardPassNeedsNoSync) {
  run_ranks(1, [](Transport& transport) {
    WholeModel model(1);
    Communicator comm(transport);
    Ddp ddp(model.arena, comm);
    model.arena.zero_grad();
    backward_scaled(test::whole_loss(model.net, test::whole_samples(0, 2)), model.step);
    EXPECT_THROW(backward_scaled(test::whole_loss(model.net, test::whole_samples(0, 2)), model.step),
                 ArgumentError);
  });
}

TEST(DistributedDataParallel, AStoppedRankIsNamedWithItsBucket) {
  for (const Overlap overlap : {Overlap::thread, Overlap::pumped, Overlap::none}) {
    ThreadJob job(2);
    run_ranks(job, 2, [&](Transport& transport) {
      WholeModel model(2);
      Communicator comm(transport, {.timeout = 3s});
      Ddp ddp(model.arena, comm, {.overlap = overlap});
      Communicator patient(transport);
      patient.run(*patient.barrier());
      if (transport.rank() == 0) job.stop(1);
      model.arena.zero_grad();
      const std::string error = test::message_of<PeerLostError>([&] {
        backward_scaled(test::whole_loss(model.net, test::whole_samples(0, 2)), model.step);
        ddp.reduce(model.step);
      });
      EXPECT_TRUE(test::names(error, {"all_reduce", "bucket", fmt::format("rank {}", 1 - transport.rank())}));
    });
  }
}

// A rank that fails in its backward pass must not have to wait for those that wait for it.
TEST(DistributedDataParallel, AFailingRankEndsTheOthers) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THROW(run_ranks(3,
                         [&](Transport& transport) {
                           WholeModel model(3);
                           Communicator comm(transport);
                           Ddp ddp(model.arena, comm);
                           model.arena.zero_grad();
                           backward_scaled(test::whole_loss(model.net, test::whole_samples(0, 2)),
                                           model.step);
                           ATH_CHECK(transport.rank() != 1, "test: rank 1 fails");
                           ddp.reduce(model.step);
                         }),
               ArgumentError);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 200s);
}

TEST(DistributedDataParallel, BatchesWeighBySamples) {
  EXPECT_EQ(dist::batch_weight(3, 12), 0.25f);
  EXPECT_EQ(dist::batch_weight(0, 5), 0);
  EXPECT_THROW(dist::batch_weight(6, 5), ArgumentError);
  EXPECT_THROW(dist::batch_weight(0, 0), ArgumentError);
  // Means of 1, 2 and 3 samples, weighed, are the mean of 6.
  run_ranks(3, [](Transport& transport) {
    const int rank = transport.rank();
    WholeModel one(1), many(3);
    Communicator comm(transport);
    Ddp ddp(many.arena, comm);
    one.arena.zero_grad();
    backward_scaled(mean(square(one.net(test::whole_samples(0, 6)))), one.step);
    many.arena.zero_grad();
    backward_scaled(mean(square(many.net(test::whole_samples(rank * (rank + 1) / 2, rank + 1)))), many.step,
                    dist::batch_weight(rank + 1, 6));
    ddp.reduce(many.step);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(test::close(many.arena.gradient(i), one.arena.gradient(i), 1e-6));
  });
}

}  // namespace athanor::data_parallel_test
