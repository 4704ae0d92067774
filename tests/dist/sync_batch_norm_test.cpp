#include "dist/sync_batch_norm.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "dist/transports/thread_transport.h"
#include "nn/models/resnet.h"
#include "tests/support/data_parallel_cases.h"
#include "tests/support/errors.h"
#include "tests/support/sync_batch_norm_cases.h"

namespace athanor::sync_batch_norm_test {

using namespace std::chrono_literals;
using dist::Communicator;
using dist::Ddp;
using dist::Overlap;
using dist::run_ranks;
using dist::SyncBatchNorm;
using dist::Transport;
using dist::Zero1;

constexpr int kWorlds[] = {1, 2, 3, 4};

void on_worlds(void (*check)(Transport&)) {
  for (const int world : kWorlds) run_ranks(world, check);
}

TEST(SyncBatchNorm, EqualsOneRankOnTheJoinedBatch) {
  on_worlds(test::check_join_equals_one_rank);
}
TEST(SyncBatchNorm, Gradcheck) {
  on_worlds(test::check_join_gradients);
}
TEST(SyncBatchNorm, OneValueOverAllRanksIsRefused) {
  on_worlds(test::check_one_sample_is_refused);
}
TEST(SyncBatchNorm, EvaluationIsLocal) {
  on_worlds(test::check_evaluation_is_local);
}
TEST(SyncBatchNorm, RecomputationReducesAgain) {
  on_worlds(test::check_recomputation);
}

TEST(SyncBatchNorm, TrainingEqualsOneRankOnTheJoinedBatch) {
  for (const int world : kWorlds)
    run_ranks(world, [](Transport& t) { test::check_training_equals_one_rank<Ddp>(t, true); });
}
// Buckets are under way while norms ask the other ranks: on another network.
TEST(SyncBatchNorm, AnyThreadMayAdvanceBuckets) {
  for (const Overlap overlap : {Overlap::none, Overlap::pumped})
    run_ranks(3, [&](Transport& t) { test::check_training_equals_one_rank<Ddp>(t, true, overlap); });
}
TEST(SyncBatchNorm, TrainsWithZeroOne) {
  run_ranks(3, [](Transport& t) { test::check_training_equals_one_rank<Zero1>(t, true); });
}
TEST(SyncBatchNorm, DelaysChangeNothing) {
  run_ranks(3, [](Transport& t) { test::check_training_equals_one_rank<Ddp>(t, true); },
            {.delay = 200us, .seed = 3});
}

// Over NCCL before 2.26, all ranks must do everything in one order: no bucket while norms may ask others.
TEST(SyncBatchNorm, BucketsWaitWithoutConcurrentNetworks) {
  for (const Overlap overlap : {Overlap::thread, Overlap::pumped}) {
    const auto check = [&](Transport& transport) {
      test::check_training_equals_one_rank<Ddp>(transport, true, overlap);
      test::DigitsNet norms(true);
      test::WholeModel model(transport.world_size(), 0);
      model.net.use_spare = true;  // all parameters: buckets are complete during the pass
      Communicator comm(transport);
      Ddp ddp(model.arena, comm, {.overlap = overlap});
      for (const bool joined : {true, false}) {
        const auto sync = joined ? std::make_unique<SyncBatchNorm>(norms, comm) : nullptr;
        const std::int64_t before = comm.session().flight().size();
        model.arena.zero_grad();
        backward_scaled(test::whole_loss(model.net, test::whole_samples(transport.rank() * 4, 4)),
                        model.step);
        if (joined) std::this_thread::sleep_for(20ms);
        if (joined || overlap == Overlap::pumped) {
          EXPECT_EQ(comm.session().flight().size() == before, joined);
        }
        ddp.reduce(model.step);
        EXPECT_GT(comm.session().flight().size(), before);
      }
    };
    run_ranks(2, check, {.in_order = true});
  }
}

TEST(SyncBatchNorm, JoinsAllNormsOfAModelAndReleasesThem) {
  run_ranks(2, [](Transport& transport) {
    test::DigitsNet model(true);
    Communicator comm(transport);
    const test::DigitsBatch batch = test::digits_batch(transport.rank() * 50, 8);
    const NoGrad no_grad;
    const Tensor alone = model(batch.images);
    {
      const SyncBatchNorm sync(model, comm);
      EXPECT_EQ(sync.size(), 2);
      EXPECT_FALSE(test::same_bits(model(batch.images), alone));
    }
    EXPECT_TRUE(test::same_bits(model(batch.images), alone));

    const auto resnet = nn::make_model("resnet20", {10, 3, 32}, 1);
    EXPECT_EQ(SyncBatchNorm(*resnet, comm).size(), 19 + 2);  // those of the two shortcuts, too
  });
}

// Known numbers: 1 | 3, 8 on two ranks has the mean 4, and the biased variance 26 / 3, the unbiased 13.
TEST(SyncBatchNorm, ValuesWorkedOutByHand) {
  run_ranks(2, [](Transport& transport) {
    test::NoModel model;
    Communicator comm(transport);
    SyncBatchNorm sync(model, comm);
    const bool first = transport.rank() == 0;
    const Tensor x = first ? Tensor::from(std::vector<double>{1}, {1, 1})
                           : Tensor::from(std::vector<double>{3, 8}, {2, 1});
    const Tensor mean = Tensor::from(std::vector<double>{10}, {1}),
                 var = Tensor::from(std::vector<double>{1}, {1});
    const Tensor y = batch_norm(x, {}, {}, mean, var, true, {.eps = 0, .momentum = 0.25f, .joined = &sync});
    const double deviation = std::sqrt(26.0 / 3);
    EXPECT_NEAR(y.to_vector()[0], (first ? -3 : -1) / deviation, 1e-15);
    EXPECT_NEAR(mean.item(), 0.75 * 10 + 0.25 * 4, 1e-15);
    EXPECT_NEAR(var.item(), 0.75 + 0.25 * 13, 1e-15);
  });
}

// The network of the buckets is not there for others: norms must not try.
TEST(SyncBatchNorm, NeedsATransportThatCanBeDuplicated) {
  struct Plain final : Transport {
    Plain() : Transport(0, 2) {}
    dist::Request isend(int, dist::Tag, std::span<const std::byte>) override { return {}; }
    dist::Request irecv(int, dist::Tag, std::span<std::byte>) override { return {}; }
    bool test(dist::Request&) override { return true; }
    void cancel(dist::Request&) noexcept override {}
  } plain;
  test::NoModel model;
  const Communicator comm(plain);
  EXPECT_THROW(SyncBatchNorm(model, comm), ArgumentError);
}

// Who is gone is gone on every network.
TEST(SyncBatchNorm, ALostRankIsNoticedAtOnce) {
  const auto began = std::chrono::steady_clock::now();
  run_ranks(2, [&](Transport& transport) {
    nn::BatchNorm norm(3);
    const Communicator comm(transport, {.timeout = 300s});
    const SyncBatchNorm sync(norm, comm);
    if (transport.rank() == 1) return;
    EXPECT_THROW(norm(test::norm_wave({4, 3}, DType::f32, 0, 0)), PeerLostError);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - began, 200s);
}

TEST(SyncBatchNorm, AMissingRankIsNamed) {
  std::atomic<bool> named{false};
  run_ranks(2, [&](Transport& transport) {
    nn::BatchNorm norm(3);
    const Communicator comm(transport, {.timeout = 400ms});
    const SyncBatchNorm sync(norm, comm);
    Communicator other(transport);
    other.run(*other.barrier());
    if (transport.rank() == 1) {  // is there, but computes something else
      while (!named) std::this_thread::sleep_for(1ms);
      return;
    }
    EXPECT_ERROR(PeerLostError, norm(test::norm_wave({4, 3}, DType::f32, 0, 0)), "sync_batch_norm",
                 "rank_order all_gather", "rank 1", "0.4 s");
    named = true;
  });
}

}  // namespace athanor::sync_batch_norm_test
