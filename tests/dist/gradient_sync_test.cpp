// What DDP and ZeRO-1 owe to one who uses them wrongly, or changes a model on the way.
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "autograd/creation.h"
#include "autograd/dropout.h"
#include "dist/transports/thread_transport.h"
#include "tests/support/data_parallel_cases.h"
#include "tests/support/errors.h"

namespace athanor::gradient_sync_test {

using namespace std::chrono_literals;
using dist::Request;
using dist::run_ranks;
using dist::Tag;
using dist::Transport;
using test::Communicator;
using test::Ddp;
using test::Overlap;
using test::WholeModel;
using test::Zero1;

/// Counts what a rank sends.
class Counting final : public Transport {
 public:
  explicit Counting(Transport& below, bool threads = true)
      : Transport(below.rank(), below.world_size()), below_(below), threads_(threads) {}

  Request isend(int to, Tag tag, std::span<const std::byte> bytes) override {
    ++messages;
    return below_.isend(to, tag, bytes);
  }
  Request irecv(int from, Tag tag, std::span<std::byte> bytes) override {
    return below_.irecv(from, tag, bytes);
  }
  bool test(Request& request) override { return below_.test(request); }
  void cancel(Request& request) noexcept override { below_.cancel(request); }
  bool threads_may_call() const override { return threads_; }

  std::atomic<std::int64_t> messages{0};

 private:
  Transport& below_;
  bool threads_;
};

/// All of its parameters are used: buckets are complete during the pass.
struct Model : WholeModel {
  explicit Model(int world_size, const ArenaOptions& options = {}) : WholeModel(world_size, 0, options) {
    net.use_spare = true;
  }
};

void pass(WholeModel& model, int rank = 0) {
  backward_scaled(test::whole_loss(model.net, test::whole_samples(rank * 4, 4)), model.step);
}

// Of one rank on the samples of all.
std::vector<float> joined_gradients(int world) {
  Model one(1);
  one.arena.zero_grad();
  backward_scaled(test::whole_loss(one.net, test::whole_samples(0, 4 * world)), one.step);
  return one.gradients();
}

// Order of calls -------------------------------------------------------------------------------------------

TEST(GradientSync, NoSyncAfterTheLastPassIsAnError) {
  run_ranks(2, [](Transport& transport) {
    Model model(2);
    Communicator comm(transport);
    Ddp ddp(model.arena, comm);
    for (int i = 0; i < 2; ++i) {
      model.arena.zero_grad();
      pass(model, transport.rank());
      EXPECT_THROW((void)ddp.no_sync(), ArgumentError);
      ddp.reduce(model.step);
      EXPECT_EQ(model.gradients(), joined_gradients(2));
    }
  });
}

TEST(GradientSync, NoSyncLastsUntilTheLastOfItsScopes) {
  run_ranks(2, [](Transport& below) {
    Counting transport(below);
    Model model(2);
    Communicator comm(transport);
    Ddp ddp(model.arena, comm, {.overlap = Overlap::pumped});
    std::optional<dist::GradientSync::NoSync> first(std::in_place, ddp), second(std::in_place, ddp);
    first.reset();
    const std::int64_t before = transport.messages;
    pass(model);
    EXPECT_EQ(transport.messages, before);
    second.reset();
    pass(model);
    EXPECT_GT(transport.messages, before);
    ddp.reduce(model.step);
  });
}

// They travel with the norm, which is not measured where they stop the step.
TEST(GradientSync, VotesToStopComeWithTheGradients) {
  run_ranks(3, [](Transport& transport) {
    Model model(3);
    Communicator comm(transport);
    dist::StepAgreement agreement;
    Ddp ddp(model.arena, comm, {.agreement = &agreement});
    for (const int voter : {-1, 0, 2}) {
      model.arena.zero_grad();
      model.step->grad_norm = -1;
      pass(model, transport.rank());
      agreement.cast({.reason = transport.rank() == voter ? 3 : -1});
      ddp.reduce(model.step);
      const dist::StopVote& all = agreement.outcome();
      EXPECT_EQ(all.stops(), voter >= 0);
      EXPECT_EQ(model.step->grad_norm == -1, voter >= 0);
      EXPECT_EQ(model.gradients(), joined_gradients(3)) << "which all have all the same";
      if (voter < 0) continue;
      EXPECT_EQ(all.reason, 3);
      EXPECT_EQ(all.rank, voter);
    }
  });
}

TEST(GradientSync, AForgottenZeroGradIsAnError) {
  for (const bool silent : {false, true}) {
    run_ranks(2, [&](Transport& transport) {
      Model model(2);
      Communicator comm(transport);
      Ddp ddp(model.arena, comm, {.overlap = Overlap::none});
      pass(model, transport.rank());
      ddp.reduce(model.step);
      const std::vector<float> before = model.gradients();
      EXPECT_THROW(ddp.reduce(model.step), ArgumentError);
      EXPECT_EQ(model.gradients(), before);
      const auto forgetful_pass = [&] {
        std::optional<dist::GradientSync::NoSync> scope;
        if (silent) scope.emplace(ddp);
        pass(model, transport.rank());
      };
      EXPECT_ERROR(ArgumentError, forgetful_pass(), "ddp", "zero_grad()");
      model.arena.zero_grad();
      pass(model, transport.rank());
      ddp.reduce(model.step);
      EXPECT_EQ(model.gradients(), before);
    });
  }
}

TEST(ZeroOne, AForgottenGatherIsAnError) {
  run_ranks(2, [](Transport& transport) {
    Communicator comm(transport);
    Model model(2, dist::sharded({}, comm, test::kSmallBuckets));
    Zero1 zero1(model.arena, comm);
    Sgd sgd(model.arena, {});
    const auto step = [&](bool gather) {
      model.arena.zero_grad();
      pass(model, transport.rank());
      zero1.reduce(model.step);
      sgd.set_learning_rates(model.step, schedules::constant(0.25f));
      sgd.step(model.step);
      finish_step(model.step);
      if (gather) zero1.gather_weights();
    };
    step(true);
    step(false);
    EXPECT_ERROR(ArgumentError, step(true), "zero1", "gather_weights()");
    EXPECT_THROW(zero1.reduce(model.step), ArgumentError);
    zero1.gather_weights();
    step(true);
  });
}

// Who may use the network ----------------------------------------------------------------------------------

TEST(GradientSync, NothingElseCommunicatesWhileBucketsAreInFlight) {
  for (const Overlap overlap : {Overlap::thread, Overlap::pumped, Overlap::none}) {
    run_ranks(2, [&](Transport& transport) {
      Model model(2), other(2);
      Communicator comm(transport), second(transport);
      Ddp ddp(model.arena, comm, {.overlap = overlap});
      Ddp other_ddp(other.arena, second, {.overlap = overlap});
      pass(model, transport.rank());
      EXPECT_THROW(comm.run(*comm.barrier()), ArgumentError);
      EXPECT_THROW(second.run(*second.barrier()), ArgumentError);
      EXPECT_THROW(pass(other), ArgumentError);
      ddp.reduce(model.step);
      EXPECT_EQ(model.gradients(), joined_gradients(2));
      second.run(*second.barrier());
    });
  }
}

TEST(Communicators, OfOneTransportShareItsTags) {
  run_ranks(1, [](Transport& transport) {
    Communicator first(transport), second(transport);
    EXPECT_EQ(first.session().next_tag(), 0);
    EXPECT_EQ(second.session().next_tag(), 1);
    EXPECT_EQ(first.session().next_tag(), 2);
  });
}

TEST(Communicators, CannotBeUsedAfterALostRank) {
  std::atomic<bool> done{false};
  run_ranks(2, [&](Transport& transport) {
    Communicator comm(transport, {.timeout = 200ms});
    while (transport.rank() == 1 && !done) std::this_thread::sleep_for(1ms);
    if (transport.rank() == 1) return;
    const std::string first = test::message_of<PeerLostError>([&] { comm.run(*comm.barrier()); });
    EXPECT_TRUE(test::names(first, {"barrier", "rank 1", "0.2 s"}));
    EXPECT_ERROR(PeerLostError, comm.run(*comm.barrier()), "barrier", first);
    EXPECT_THROW(comm.run(*comm.barrier()), PeerLostError);
    done = true;
  });
}

// One that was in the middle of a step has left its messages behind.
TEST(Communicators, CannotBeUsedAfterAnAbandonedStep) {
  run_ranks(2, [](Transport& transport) {
    Communicator comm(transport);
    {
      Model model(2);
      Ddp ddp(model.arena, comm, {.overlap = Overlap::none});
      pass(model);
    }
    EXPECT_THROW(comm.run(*comm.barrier()), PeerLostError);
  });
}

TEST(GradientSync, AThreadNeedsATransportThatAllowsIt) {
  run_ranks(2, [](Transport& below) {
    Counting transport(below, false);
    Model model(2);
    Communicator comm(transport);
    EXPECT_THROW(Ddp(model.arena, comm), ArgumentError);
    Ddp ddp(model.arena, comm, {.overlap = Overlap::pumped});
    pass(model, transport.rank());
    ddp.reduce(model.step);
    EXPECT_EQ(model.gradients(), joined_gradients(2));
  });
}

// What a pass leaves out -----------------------------------------------------------------------------------

// An op that depends on the spare layer and hands nothing over: its hook is called, its gradient is not
// there.
TEST(GradientSync, ReachedButUndeliveredGradientsJoinWithZeros) {
  for (const auto overlap : {Overlap::none, Overlap::pumped}) {
    run_ranks(3, [&](Transport& transport) {
      Model model(3);
      Communicator comm(transport);
      Ddp ddp(model.arena, comm, {.overlap = overlap});
      pass(model, transport.rank());
      ddp.reduce(model.step);
      const int last = model.arena.size() - 1;
      // Rank 0 alone delivers.
      model.arena.zero_grad();
      model.net.use_spare = transport.rank() == 0;
      Tensor y = model.net(test::whole_samples(0, 4));
      if (transport.rank() != 0) {
        const nn::Linear& spare = model.net.spare;
        y = record("reach", clone(y.detach()), {y, spare.weight(), spare.bias()},
                   [](const Tensor& dy, Grads& dx) { dx[0] = dy; });
      }
      backward_scaled(sum(square(y)), model.step);
      ddp.reduce(model.step);
      Model alone(1);
      pass(alone);
      EXPECT_TRUE(test::same_bits(model.arena.gradient(last), alone.arena.gradient(last)));
      EXPECT_EQ(ddp.unused(1), (std::vector<std::string>{"spare.weight", "spare.bias"}));
    });
  }
}

// Freezing -------------------------------------------------------------------------------------------------

TEST(GradientSync, ALayerMayBeUnfrozenBetweenSteps) {
  for (const auto overlap : {Overlap::none, Overlap::pumped, Overlap::thread}) {
    run_ranks(2, [&](Transport& transport) {
      Model model(2);
      for (const Parameter& parameter : model.net.spare.parameters()) forget_grad(parameter.tensor);
      Communicator comm(transport);
      Ddp ddp(model.arena, comm, {.overlap = overlap});
      const auto step = [&] {
        model.arena.zero_grad();
        pass(model, transport.rank());
        ddp.reduce(model.step);
      };
      step();
      for (const Parameter& parameter : model.net.spare.parameters()) require_grad(parameter.tensor);
      for (int i = 0; i < 2; ++i) {
        step();
        EXPECT_EQ(model.gradients(), joined_gradients(2));
      }
      EXPECT_TRUE(ddp.unused(0).empty());
    });
  }
}

TEST(GradientSync, AfterFreezingAndUnfreezingBucketsStillBeginDuringThePass) {
  run_ranks(2, [](Transport& below) {
    Counting transport(below);
    Model model(2);
    Communicator comm(transport);
    Ddp ddp(model.arena, comm, {.overlap = Overlap::pumped});
    for (int i = 0; i < 3; ++i) {
      for (const Parameter& parameter : model.net.parameters()) {
        if (i == 1) forget_grad(parameter.tensor), require_grad(parameter.tensor);
      }
      model.arena.zero_grad();
      const std::int64_t before = transport.messages;
      pass(model, transport.rank());
      // The pass that finds them new does not know yet which of them are complete.
      if (i != 1) {
        EXPECT_GT(transport.messages, before) << i;
      }
      ddp.reduce(model.step);
      EXPECT_EQ(model.gradients(), joined_gradients(2));
    }
  });
}

// Overlap --------------------------------------------------------------------------------------------------

TEST(GradientSync, BucketsBeginDuringThePass) {
  for (const Overlap overlap : {Overlap::thread, Overlap::pumped, Overlap::none}) {
    run_ranks(2, [&](Transport& below) {
      Counting transport(below);
      Model model(2);
      Communicator comm(transport);
      Ddp ddp(model.arena, comm, {.overlap = overlap});
      const std::int64_t before = transport.messages;
      pass(model, transport.rank());
      const auto until = std::chrono::steady_clock::now() + 120s;
      while (overlap == Overlap::thread && transport.messages == before &&
             std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(1ms);
      EXPECT_EQ(transport.messages > before, overlap != Overlap::none);
      ddp.reduce(model.step);
    });
  }
}

// What ranks begin with ------------------------------------------------------------------------------------

TEST(GradientSync, BuffersAndHalfWeightsOfRank0GoToAll) {
  const auto check = []<class Sync>(Transport& transport, Sync*) {
    const int rank = transport.rank();
    const auto fill = [](test::MixedNet& net, int number) {
      const auto set = [&](const Tensor& tensor) {
        for (std::int64_t k = 0; k < tensor.numel(); ++k)
          tensor.data<float>()[k] = static_cast<float>(100 * number + k % 50 + 1);
      };
      for (const Parameter& parameter : net.parameters()) set(parameter.tensor);
      for (const NamedTensor& buffer : net.buffers()) set(buffer.tensor);
    };
    test::MixedNet net, of_rank_0;
    fill(net, rank);
    fill(of_rank_0, 0);
    Communicator comm(transport);
    ParameterArena arena(net.parameters(), net.buffers(),
                         test::arena_options<Sync>({.precision = Precision::bf16}, comm));
    const ParameterArena expected(of_rank_0.parameters(), of_rank_0.buffers(),
                                  test::arena_options<Ddp>({.precision = Precision::bf16}, comm));
    const Sync sync(arena, comm);
    EXPECT_TRUE(test::same_bits(arena.buffers().flat(), expected.buffers().flat())) << rank;
    for (std::size_t i = 0; i < arena.parts().size(); ++i) {
      EXPECT_TRUE(test::same_bits(arena.parts()[i].weights, expected.parts()[i].weights)) << rank;
      if (!arena.shards().sharded()) {
        EXPECT_TRUE(test::same_bits(arena.parts()[i].masters, expected.parts()[i].masters)) << rank;
      }
    }
  };
  run_ranks(3, [&](Transport& transport) {
    check(transport, static_cast<Ddp*>(nullptr));
    check(transport, static_cast<Zero1*>(nullptr));
  });
}

// Accumulation ---------------------------------------------------------------------------------------------

TEST(GradientSync, AccumulationInEveryAlgorithmAndPrecision) {
  for (const int world : {1, 2, 4}) run_ranks(world, test::check_accumulation_everywhere);
}

}  // namespace athanor::gradient_sync_test
