// The rows of all ranks, with a gradient; and losses over them.
#include "dist/all_gather.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "dist/transports/thread_transport.h"
#include "tests/support/all_gather_cases.h"
#include "tests/support/contrastive_training.h"
#include "tests/support/errors.h"

namespace athanor::all_gather_test {

using namespace std::chrono_literals;
using dist::Communicator;
using dist::PassNetwork;
using dist::run_ranks;
using dist::Transport;

TEST(AllGather, RowsAndGradientsToTheBit) {
  for (const int world : {1, 2, 3, 4, 8}) run_ranks(world, test::check_rows_and_gradients);
  run_ranks(3, test::check_rows_and_gradients, {.delay = 200us, .seed = 3});
}
TEST(AllGather, WorksWithoutGradients) {
  for (const int world : {1, 2, 3}) run_ranks(world, test::check_no_gradient_is_asked_for);
}
TEST(AllGather, ReportsMismatchedRanks) {
  for (const int world : {2, 3}) run_ranks(world, test::check_ranks_that_differ_are_told);
}

TEST(AllGather, KeptResultDoesNotKeepTheNetworkAlive) {
  run_ranks(2, [](Transport& transport) {
    const Communicator comm(transport);
    auto network = std::make_optional<PassNetwork>(comm);
    Tensor x = Tensor::zeros({2, 2});
    require_grad(x);
    const Tensor y = sum(dist::all_gather(x, *network));
    network.reset();
    EXPECT_ERROR(ArgumentError, backward(y), "all_gather", "communicator");
  });
}

TEST(AllGather, NamesTheMissingRank) {
  for (const bool in_forward : {true, false}) {
    std::atomic<bool> named{false};
    run_ranks(2, [&](Transport& transport) {
      // In the backward pass both meet before: a busy machine may let one of them wait.
      const Communicator comm(transport, {.timeout = in_forward ? 400ms : 5000ms});
      const PassNetwork network(comm);
      Tensor x = Tensor::zeros({2, 2});
      require_grad(x);
      const Tensor y = in_forward ? Tensor() : sum(dist::all_gather(x, network));
      if (transport.rank() == 1) {  // is there, but computes something else
        while (!named) std::this_thread::sleep_for(1ms);
        return;
      }
      if (in_forward) {
        EXPECT_ERROR(PeerLostError, dist::all_gather(x, network), "all_gather", "rank_order all_gather",
                     "rank 1", "0.4 s");
      } else {
        EXPECT_ERROR(PeerLostError, backward(y), "all_gather backward", "rank_order reduce_scatter", "rank 1",
                     "5 s");
      }
      named = true;
    });
  }
}

// Losses ---------------------------------------------------------------------------------------------------

TEST(AllGather, LossesOverAllRanksGiveTheGradientsOfOneRank) {
  for (const int world : {2, 4}) run_ranks(world, test::check_losses_over_all_ranks);
}
// Over NCCL before 2.26, all ranks must do everything in one order.
TEST(AllGather, LossesWithoutConcurrentNetworks) {
  run_ranks(2, test::check_losses_over_all_ranks, {.delay = 100us, .seed = 5, .in_order = true});
}

TEST(AllGather, TaskMustDeclareThatItGathers) {
  struct Silent : test::Contrastive {
    using Contrastive::Contrastive;
    bool gathers() const override { return false; }
  } task(test::Contrastive::Loss::nt_xent);
  Trainer trainer(test::small_config());
  const auto data = synthetic(test::kSmallSpec, 32, 1), held_out = synthetic(test::kSmallSpec, 16, 2);
  EXPECT_ERROR(ArgumentError, trainer.fit(task, *data, *held_out), "all_gather", "gathers()");
}

// Each rank by itself looks for the op that made it.
TEST(AllGather, NamesTheRankWhoseGradientsOverflow) {
  run_ranks(2, [](Transport& transport) {
    struct Spoilt : test::Contrastive {
      using Contrastive::Contrastive;
      Tensor training_step(const Batch& batch, Step& step) override {
        return affine(loss_of(batch, step), INFINITY);
      }
    } task(test::Contrastive::Loss::nt_xent);
    TrainerConfig config = test::small_config();
    config.threads = 1;
    config.strategy = Strategy::ddp;
    config.max_overflows_at_floor = 2;
    Trainer trainer(config, &transport);
    const auto data = synthetic(test::kSmallSpec, 64, 1), held_out = synthetic(test::kSmallSpec, 16, 2);
    EXPECT_ERROR(DivergedError, trainer.fit(task, *data, *held_out), "affine");
  });
}

}  // namespace athanor::all_gather_test
