#include "optim/ema.h"

#include <array>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/optim_training.h"

namespace athanor::ema_test {

using test::deliver;
using test::filled;
using test::kOptimizerKinds;
using test::OptimTraining;

TEST(Ema, AveragesMastersAndBuffersByHand) {
  const Tensor w = filled({1}, {0}), mean = Tensor::from(std::vector<float>{0}, {1});
  ParameterArena arena({{"w", w}}, {{"mean", mean}}, {.precision = Precision::bf16});
  Ema ema(arena, {.decay = 0.75, .warm_up = false});
  StepBuffer state;
  for (const double expected : {1.0, 1.75}) {  // towards 4, a quarter of the way each time
    arena.master(0).data<float>()[0] = 4;
    arena.weights_from_masters();
    mean.data<float>()[0] = 8;
    ema.update(state);
    const EmaSwap swap(ema);
    EXPECT_EQ(arena.master(0).item(), expected);
    EXPECT_EQ(w.item(), expected);
    EXPECT_EQ(mean.item(), 2 * expected);
    EXPECT_THROW(ema.update(state), ArgumentError);
    EXPECT_THROW(ema.state_dict(), ArgumentError) << "what is saved now are the weights";
  }
  EXPECT_EQ(w.item(), 4);
  EXPECT_EQ(mean.item(), 8);
}

TEST(Ema, WarmsUpByAppliedSteps) {
  const Tensor w = filled({1}, {0});
  ParameterArena arena({{"w", w}}, {});
  Ema ema(arena, {.decay = 0.999});
  w.data<float>()[0] = 11;
  StepBuffer state;
  ema.update(state);  // decay 2 / 11
  ema.swap();
  EXPECT_NEAR(w.item(), 9, 1e-5);
  ema.swap();
  state->applied_steps = 1'000'000;
  ema.update(state);
  ema.swap();
  EXPECT_NEAR(w.item(), 9.002, 1e-5);
  EXPECT_THROW(Ema(arena, {.decay = 1}), ArgumentError);
}

TEST(Ema, IsUpdatedInEveryNthAppliedStep) {
  const Tensor w = filled({1}, {0});
  ParameterArena arena({{"w", w}}, {});
  Ema steady(arena, {.decay = 0.5, .warm_up = false, .every = 3}), warming(arena, {.decay = 0.9, .every = 3});
  w.data<float>()[0] = 11;
  StepBuffer state;
  const auto value_of = [&](Ema& ema) {
    const EmaSwap swap(ema);
    return w.item();
  };
  for (std::int64_t step = 0; step < 7; ++step) {
    state->applied_steps = step;
    steady.update(state);
    warming.update(state);
    EXPECT_EQ(value_of(steady), step < 2 ? 0 : step < 5 ? 5.5 : 8.25) << step;
    if (step == 2) {
      EXPECT_NEAR(value_of(warming), 9, 1e-5) << "decay 2 / 11, as of a first update";
    }
  }
  EXPECT_THROW(Ema(arena, {.every = 0}), ArgumentError);
}

// Over 20 steps: some parameters without a gradient part of the time, a step that is skipped, and one without
// the optimizer.
TEST(Ema, FusedAndSeparatePassesGiveTheSameBits) {
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    for (const std::string kind : kOptimizerKinds) {
      SCOPED_TRACE(kind);
      OptimTraining fused(kind, precision, 2200), separate(kind, precision, 2200);  // a matrix of two chunks
      for (OptimTraining* const training : {&fused, &separate}) {
        training->average({.decay = 0.9}, training == &fused);
        const auto begin = training->averages();
        for (int t = 0; t < 20; ++t) {
          for (std::size_t p = 0; p < training->frozen.size(); ++p) {
            training->frozen[p] = (t / 4 + static_cast<int>(p)) % 3 == 0 || (t == 9 && p != 1);
          }
          training->model.buffers[0].tensor.data<float>()[0] += 1;
          training->step(t == 7 ? std::numeric_limits<float>::infinity() : 0);
          if (t == 12) training->ema->update(training->state);  // as if the optimizer had done nothing
        }
        EXPECT_EQ(training->state->overflow_steps, 1);
        const auto end = training->averages();
        for (std::size_t i = 0; i < end.size(); ++i) EXPECT_NE(end[i], begin[i]) << i;
      }
      EXPECT_EQ(fused.arena.weights_hash(), separate.arena.weights_hash());
      EXPECT_EQ(fused.averages(), separate.averages());
    }
  }
}

TEST(Ema, FusedAveragesMoveInTheOptimizersStep) {
  const Tensor w = filled({1}, {0}), still = filled({1}, {0});
  ParameterArena arena({{"w", w}, {"still", still}}, {});
  Sgd sgd(arena, {Sgd::Group{{.parameters = selectors::named({"w"})}, {}}}, 0);
  Ema ema(arena, {.decay = 0.75, .warm_up = false});
  ema.fuse_into(sgd);
  StepBuffer state;
  state->learning_rate[0] = 1;
  const auto average = [&](const char* name) { return ema.state_dict().tensor(name).item(); };
  deliver(w, {-4});
  still.data<float>()[0] = 8;
  sgd.step(state);  // w = 4, and its average a quarter of it
  EXPECT_EQ(average("w"), 1);
  EXPECT_EQ(average("still"), 0);
  ema.update(state);
  EXPECT_EQ(average("w"), 1);
  EXPECT_EQ(average("still"), 2);
  ema.update(state);  // no step since: all averages move on
  EXPECT_EQ(average("w"), 1.75);
  EXPECT_EQ(average("still"), 3.5);
  sgd.step(state);
  sgd.step(state);
  EXPECT_THROW(ema.update(state), ArgumentError);
}

/// w -= g, by loops of its own.
class OwnOptimizer final : public Optimizer {
 public:
  explicit OwnOptimizer(ParameterArena& arena)
      : Optimizer("own", arena, {ParamGroup{}}, 0, std::array{Decay::matrices}) {}
  void step(StepBuffer&) override {
    arena().master(0).data<float>()[0] -= arena().gradient(0).data<float>()[0];
    stepped();
  }
};

TEST(Ema, AnOptimizerThatDoesNotFuseGetsAPassOfItsOwn) {
  const Tensor w = filled({1}, {0});
  ParameterArena arena({{"w", w}}, {});
  OwnOptimizer own(arena);
  Ema ema(arena, {.decay = 0.75, .warm_up = false});
  ema.fuse_into(own);
  StepBuffer state;
  deliver(w, {-4});
  own.step(state);
  EXPECT_EQ(w.item(), 4);
  ema.update(state);
  EXPECT_EQ(ema.state_dict().tensor("w").item(), 1);
}

TEST(Ema, FusesIntoOneOptimizerOfItsArena) {
  OptimTraining a("muon"), b("sgd");
  Ema ema(a.arena);
  EXPECT_THROW(ema.fuse_into(*b.optimizer), ArgumentError) << "another arena";
  ema.fuse_into(*a.optimizer);
  EXPECT_THROW(ema.fuse_into(*a.optimizer), ArgumentError);
  {
    Ema other(b.arena), second(b.arena);
    other.fuse_into(*b.optimizer);
    EXPECT_THROW(second.fuse_into(*b.optimizer), ArgumentError) << "has averages already";
  }
  Ema(b.arena).fuse_into(*b.optimizer);  // which the first let go of
  b.step();

  Ema last(b.arena, {.decay = 0, .warm_up = false});
  last.fuse_into(*b.optimizer);
  b.step();
  b.optimizer.reset();
  b.arena.master(0).data<float>()[0] = 5;
  const auto first = [&] { return std::get<Tensor>(last.state_dict().begin()->value).data<float>()[0]; };
  last.update(b.state);
  EXPECT_NE(first(), 5) << "the step has already moved it";
  last.update(b.state);  // only it moves averages now
  EXPECT_EQ(first(), 5);
}

TEST(Ema, ResumesFromItsState) {
  OptimTraining a("sgd"), b("sgd");
  Ema first(a.arena), second(b.arena);
  a.step();
  first.update(a.state);
  second.load_state_dict(first.state_dict());
  first.swap();
  second.swap();
  EXPECT_EQ(a.arena.weights_hash(), b.arena.weights_hash());
}

}  // namespace athanor::ema_test
