// Gathering weights while the next forward pass runs.
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "dist/transports/thread_transport.h"
#include "dist/zero1.h"
#include "tests/support/data_parallel_cases.h"
#include "tests/support/errors.h"

namespace athanor::zero1_gather_test {

using namespace std::chrono_literals;
using dist::run_ranks;
using dist::Transport;
using test::Communicator;
using test::Ddp;
using test::Overlap;
using test::ParallelResult;
using test::run_all;
using test::WholeModel;
using test::Zero1;

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
  const auto until = std::chrono::steady_clock::now() + 120s;
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
TEST(ZeroOne, UnannouncedWeightReadsAreAnError) {
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
        EXPECT_ERROR(ArgumentError, model.net.first.forward(test::whole_samples(0, 2)), "zero1",
                     "first.weight");
        read = true;
      }
      zero1.settle();
      // A model that lacks some of the parameters.
      WholeModel other(2, 0, dist::sharded({}, comm, test::kSmallBuckets));
      Zero1 second(other.arena, comm, {.overlap = overlap});
      EXPECT_ERROR(ArgumentError, second.overlap_gather(other.net.first), "zero1", "second.weight");
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
          return !test::message_of<Error>([&] { transport.session().check_free("test"); }).empty();
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
          EXPECT_ERROR(ArgumentError, model.net.first.forward(test::whole_samples(0, 2)), "zero1",
                       "first.weight");
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

}  // namespace athanor::zero1_gather_test
