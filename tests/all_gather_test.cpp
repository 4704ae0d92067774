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
#include "tests/support/says.h"

namespace athanor {
namespace {

using namespace std::chrono_literals;
using dist::Communicator;
using dist::PassNetwork;
using dist::run_ranks;
using dist::Transport;

template <class E> std::string what_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing";
}

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
    EXPECT_SAYS(backward(y), "all_gather: the communicator must live until the backward pass");
  });
}

TEST(AllGather, NamesTheMissingRank) {
  for (const bool in_forward : {true, false}) {
    std::atomic<bool> named{false};
    run_ranks(2, [&](Transport& transport) {
      const Communicator comm(transport, {.timeout = 400ms});
      const PassNetwork network(comm);
      Tensor x = Tensor::zeros({2, 2});
      require_grad(x);
      const Tensor y = in_forward ? Tensor() : sum(dist::all_gather(x, network));
      if (transport.rank() == 1) {  // is there, but computes something else
        while (!named) std::this_thread::sleep_for(1ms);
        return;
      }
      const std::string said =
          what_of<PeerLostError>([&] { in_forward ? (void)dist::all_gather(x, network) : backward(y); });
      EXPECT_EQ(said.find(in_forward ? "all_gather: rank_order all_gather: rank 1 must answer"
                                     : "all_gather backward: rank_order reduce_scatter: rank 1 must answer"),
                0u)
          << said;
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
  EXPECT_SAYS(trainer.fit(task, *synthetic(test::kSmallSpec, 32, 1), *synthetic(test::kSmallSpec, 16, 2)),
              "all_gather: the task must declare that its steps gather, but does not; override gathers()");
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
    const std::string said = what_of<DivergedError>([&] {
      (void)trainer.fit(task, *synthetic(test::kSmallSpec, 64, 1), *synthetic(test::kSmallSpec, 16, 2));
    });
    EXPECT_NE(said.find("checked op by op: affine"), std::string::npos) << said;
  });
}

}  // namespace
}  // namespace athanor
