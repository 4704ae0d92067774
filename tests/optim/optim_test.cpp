#include <cmath>

#include <gtest/gtest.h>

#include "kernels/cpu/context.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/optimizer.h"
#include "optim/sgd.h"
#include "tests/support/count_new.h"
#include "tests/support/errors.h"
#include "tests/support/optim_training.h"

namespace athanor::optim_test {

using test::bytes_of;
using test::deliver;
using test::filled;
using test::kOptimizerKinds;
using test::OptimTraining;

template <class O, class Options>
std::unique_ptr<Optimizer> make(ParameterArena& arena, const Options& options) {
  return std::make_unique<O>(arena, options);
}

/// One weight, its gradients, and what the formulas make of it.
struct ByHand {
  const char* name;
  std::unique_ptr<Optimizer> (*optimizer)(ParameterArena&);
  float start, rate;
  std::vector<float> gradients;
  std::vector<double> expected;
};

const ByHand kByHand[] = {
    // g' = 1.1, b = 1.1, w = 0.78; g' = 1.078, b = 0.55 + 1.078 = 1.628, w = 0.78 - 0.3256.
    {"Momentum",
     [](ParameterArena& a) { return make<Sgd>(a, SgdOptions{.momentum = 0.5f, .weight_decay = 0.1f}); },
     1,
     0.2f,
     {1, 1},
     {0.78, 0.4544}},
    // Dampening spares the first update: b = g = 1, then 0.5 + 0.75 * 1 = 1.25.
    {"Dampening",
     [](ParameterArena& a) { return make<Sgd>(a, SgdOptions{.momentum = 0.5f, .dampening = 0.25f}); },
     0,
     1,
     {1, 1},
     {-1, -2.25}},
    // m = 1, v = 2, corrected 2 and 4, so w = -0.1; m = -0.5, v = 3, corrected -2/3 and 4.
    {"Adam",
     [](ParameterArena& a) { return make<Adam>(a, AdamOptions{.beta1 = 0.5, .beta2 = 0.5, .eps = 0}); },
     0,
     0.1f,
     {2, -2},
     {-0.1, -0.1 + 0.1 / 3}},
    // With g = 0, decay passes Adam's moments, which make a first step of lr whatever its size ...
    {"AdamDecay",
     [](ParameterArena& a) { return make<Adam>(a, AdamOptions{.weight_decay = 0.5f}); },
     4,
     0.1f,
     {0},
     {4 - 0.1}},
    // ... and shrinks the weight by lr lambda in AdamW.
    {"AdamWDecay",
     [](ParameterArena& a) { return make<AdamW>(a, AdamWOptions{.weight_decay = 0.5f}); },
     4,
     0.1f,
     {0},
     {4 - 0.1 * 0.5 * 4}},
};

class OptimizerByHand : public testing::TestWithParam<ByHand> {};

TEST_P(OptimizerByHand, FollowsItsFormula) {
  const ByHand& by_hand = GetParam();
  const Tensor w = filled({1}, {by_hand.start});
  ParameterArena arena({{"w", w}}, {});
  const std::unique_ptr<Optimizer> optimizer = by_hand.optimizer(arena);
  StepBuffer state;
  state->learning_rate[0] = by_hand.rate;
  for (std::size_t t = 0; t < by_hand.gradients.size(); ++t) {
    arena.zero_grad();
    deliver(w, {by_hand.gradients[t]});
    optimizer->step(state);
    EXPECT_NEAR(w.item(), by_hand.expected[t], 1e-6) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OptimizerByHand, testing::ValuesIn(kByHand),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Sgd, RefusesOptionsOutOfRange) {
  ParameterArena arena({{"w", filled({1}, {1})}}, {});
  EXPECT_THROW(Sgd(arena, {.momentum = 1.0f}), ArgumentError);
  EXPECT_THROW(Sgd(arena, {.momentum = -0.1f}), ArgumentError);
  EXPECT_THROW(Sgd(arena, {.weight_decay = -1}), ArgumentError);
  EXPECT_THROW(Sgd(arena, {.nesterov = true}), ArgumentError);
  EXPECT_THROW(Sgd(arena, {.momentum = 0.9f, .dampening = 0.1f, .nesterov = true}), ArgumentError);
  EXPECT_THROW(Sgd(arena, std::vector<Sgd::Group>{}, 0), ArgumentError);
  EXPECT_THROW(Sgd(arena, {Sgd::Group{{.parameters = selectors::named({"v"})}, {}}}, 0), ArgumentError);
}

// A moment that nearly forgets must not keep the rounding of what it forgets: after a gradient of 1, one of
// 1e-4 takes a step of its own.
TEST(Adam, SmallBetasFollowTheFormula) {
  for (const double beta : {0.0, 1e-5, 1e-3, 0.1, 0.4, 0.6}) {
    const Tensor w = filled({1}, {0});
    ParameterArena arena({{"w", w}}, {});
    Adam adam(arena, {.beta1 = beta, .beta2 = beta});
    StepBuffer state;
    state->learning_rate[0] = 0.01f;
    double expected = 0, m = 0, v = 0;
    int t = 0;
    for (const float g : {1.0f, 1e-4f, 3e-4f}) {
      arena.zero_grad();
      deliver(w, {g});
      adam.step(state);
      finish_step(state);
      ++t;
      m = beta * m + (1 - beta) * g;
      v = beta * v + (1 - beta) * g * g;
      const double corrected = 1 - std::pow(beta, t);
      expected -= 0.01 * (m / corrected) / (std::sqrt(v / corrected) + 1e-8);
    }
    EXPECT_NEAR(w.item(), expected, 1e-6) << beta;
  }
}

// With g = 1 in every step a moment is 1 once corrected, so only eps tells; with g = 1, then 0, beta2 does.
// One group's own schedule comes to the same rate.
TEST(Adam, GroupsHaveTheirOwnBetasEpsAndSchedule) {
  const Tensor a = filled({1}, {0}), b = filled({1}, {0}), c = filled({1}, {0});
  ParameterArena arena({{"a", a}, {"b", b}, {"c", c}}, {});
  const auto group = [](const char* name, AdamOptions options) {
    return Adam::Group{{.parameters = selectors::named({name})}, options};
  };
  Adam adam(
      arena,
      {group("a", {.beta1 = 0.5, .beta2 = 0.5, .eps = 0}), group("b", {.beta1 = 0.5, .beta2 = 0.5, .eps = 1}),
       Adam::Group{
           {.parameters = selectors::named({"c"}), .lr_scale = 0.5, .schedule = schedules::constant(0.2)},
           {.beta1 = 0.5, .beta2 = 0.75, .eps = 0}}},
      0);
  StepBuffer state;
  for (const float g : {1.0f, 0.0f}) {
    adam.set_learning_rates(state, schedules::constant(0.1));
    arena.zero_grad();
    for (const Tensor* w : {&a, &b, &c}) deliver(*w, {g});
    adam.step(state);
    finish_step(state);
  }
  // m = 0.25 / 0.75; v = 0.25 / 0.75, and for c 0.1875 / 0.4375.
  const double m = 1.0 / 3;
  EXPECT_NEAR(a.item(), -0.1 - 0.1 * m / std::sqrt(1.0 / 3), 1e-6);
  EXPECT_NEAR(b.item(), -0.1 / 2 - 0.1 * m / (std::sqrt(1.0 / 3) + 1), 1e-6);
  EXPECT_NEAR(c.item(), -0.1 - 0.1 * m / std::sqrt(0.1875 / 0.4375), 1e-6);
}

// One parameter that decays and one marked as exempt (a bias), w = 2, g = 0 where decay alone moves a weight.
struct DecayCase {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(ParameterArena&, Decay);
  double decayed, exempt;  // after one step at lr 0.1 with lambda 0.5
};
// By the formulas of torch.optim: SGD w - lr lambda w = 2 - 0.1; Adam, whose first step is lr whatever the
// gradient's size, 2 - 0.1; AdamW and Muon (1 - lr lambda) w = 1.9; with no decay and no gradient nothing
// moves.
const DecayCase kDecayCases[] = {
    {"sgd",
     [](ParameterArena& arena, Decay decay) {
       return make<Sgd>(arena, SgdOptions{.weight_decay = 0.5f, .decay = decay});
     },
     1.9, 2},
    {"sgd with momentum",
     [](ParameterArena& arena, Decay decay) {
       return make<Sgd>(arena,
                        SgdOptions{.momentum = 0.9f, .weight_decay = 0.5f, .nesterov = true, .decay = decay});
     },
     2 - 0.1 * (1 + 0.9), 2},
    {"adam",
     [](ParameterArena& arena, Decay decay) {
       return make<Adam>(arena, AdamOptions{.weight_decay = 0.5f, .decay = decay});
     },
     1.9, 2},
    {"adamw",
     [](ParameterArena& arena, Decay decay) {
       return make<AdamW>(arena, AdamWOptions{.weight_decay = 0.5f, .decay = decay});
     },
     1.9, 2},
    {"muon",
     [](ParameterArena& arena, Decay decay) -> std::unique_ptr<Optimizer> {
       const Muon::Group all{{}, {.weight_decay = 0.5f, .decay = decay}};
       return std::make_unique<Muon>(arena, std::vector{all}, 0, nullptr);
     },
     1.9, 2},
};

TEST(Decay, SkipsMarkedParametersUnlessForAll) {
  for (const DecayCase& c : kDecayCases) {
    for (const Decay decay : {Decay::matrices, Decay::all}) {
      const Tensor weight = filled({1, 1}, {2}), bias = filled({1, 1}, {2});
      ParameterArena arena({{"weight", weight}, {"bias", bias, false, false}}, {});
      const std::unique_ptr<Optimizer> optimizer = c.make(arena, decay);
      StepBuffer state;
      state->learning_rate[0] = 0.1f;
      deliver(weight, {0}), deliver(bias, {0});
      optimizer->step(state);
      EXPECT_NEAR(weight.item(), c.decayed, 1e-6) << c.name;
      EXPECT_NEAR(bias.item(), decay == Decay::all ? c.decayed : c.exempt, 1e-6) << c.name;
    }
  }
  EXPECT_EQ(SgdOptions{}.decay, Decay::matrices);
  EXPECT_EQ(AdamOptions{}.decay, Decay::matrices);
  EXPECT_EQ(AdamWOptions{}.decay, Decay::matrices);
  EXPECT_EQ(MuonOptions{}.decay, Decay::matrices);
}

// In groups, each has its own choice.
TEST(Decay, IsChosenByGroup) {
  const Tensor a = filled({1}, {2}), b = filled({1}, {2});
  ParameterArena arena({{"a", a, false, false}, {"b", b, false, false}}, {});
  const std::vector<Sgd::Group> groups{
      {{.parameters = selectors::named({"a"})}, {.weight_decay = 0.5f, .decay = Decay::all}},
      {{.parameters = selectors::named({"b"})}, {.weight_decay = 0.5f}}};
  Sgd sgd(arena, groups, 0);
  StepBuffer state;
  state->learning_rate[0] = state->learning_rate[1] = 0.1f;
  deliver(a, {0}), deliver(b, {0});
  sgd.step(state);
  EXPECT_NEAR(a.item(), 1.9, 1e-6);
  EXPECT_EQ(b.item(), 2);
}

// A bias correction by the step of the run would divide the late starter's first moments by almost nothing.
TEST(Adam, LateStarterHasItsOwnBiasCorrection) {
  const Tensor a = filled({1}, {0}), b = filled({1}, {0});
  ParameterArena arena({{"a", a}, {"b", b}}, {});
  Adam adam(arena);
  StepBuffer state;
  state->learning_rate[0] = 0.1f;
  for (int t = 0; t < 50; ++t) {
    arena.zero_grad();
    deliver(a, {1});
    if (t == 49) deliver(b, {1});
    adam.step(state);
    finish_step(state);
  }
  EXPECT_NEAR(b.item(), -0.1, 1e-6);
}

TEST(Adam, RefusesOptionsOutOfRange) {
  ParameterArena arena({{"w", filled({1}, {1})}}, {});
  EXPECT_THROW(Adam(arena, {.beta1 = 1}), ArgumentError);
  EXPECT_THROW(Adam(arena, {.beta2 = -0.1}), ArgumentError);
  EXPECT_THROW(Adam(arena, {.eps = -1}), ArgumentError);
  EXPECT_THROW(AdamW(arena, {.weight_decay = -1}), ArgumentError);
}

// What must hold for every kind of optimizer
// ------------------------------------------------------------

TEST(Optimizer, BitsDoNotDependOnTheNumberOfThreads) {
  const int threads = cpu_context().threads();
  for (const std::string kind : kOptimizerKinds) {
    if (kind.starts_with("muon")) continue;  // its matrix product may sum in another order
    std::vector<std::uint64_t> hashes;
    for (const int n : {1, 2, 3}) {
      cpu_context().set_threads(n);
      OptimTraining training(kind, Precision::bf16, 20000);
      for (int t = 0; t < 3; ++t) training.step();
      hashes.push_back(training.arena.weights_hash());
    }
    EXPECT_EQ(hashes[0], hashes[1]) << kind;
    EXPECT_EQ(hashes[0], hashes[2]) << kind;
  }
  cpu_context().set_threads(threads);
}

TEST(Optimizer, HalfPrecisionFollowsItsMasters) {
  for (const Precision precision : {Precision::bf16, Precision::f16}) {
    for (const std::string kind : kOptimizerKinds) {
      OptimTraining half(kind, precision), full(kind);
      for (int t = 0; t < 5; ++t) {
        half.step();
        full.step();
      }
      double worst = 0;
      for (int i = 0; i < half.arena.size(); ++i) {
        const Tensor& weight = half.model.parameters[static_cast<std::size_t>(i)].tensor;
        const std::vector<double> master = half.arena.master(i).to_vector(), stored = weight.to_vector(),
                                  expected = full.arena.master(i).to_vector();
        for (std::size_t k = 0; k < master.size(); ++k) {
          const auto value = static_cast<float>(master[k]);
          const double rounded = weight.dtype() == DType::f32    ? double(value)
                                 : weight.dtype() == DType::bf16 ? double(float(BFloat16(value)))
                                                                 : double(float(Half(value)));
          ASSERT_EQ(stored[k], rounded) << kind;
          worst = std::max(worst, std::abs(master[k] - expected[k]));
        }
      }
      EXPECT_GT(worst, 0) << kind << ": gradients were rounded";
      EXPECT_LT(worst, 0.02) << kind;
    }
  }
}

TEST(Optimizer, ResumesFromItsStateBitForBit) {
  for (const std::string kind : kOptimizerKinds) {
    OptimTraining straight(kind, Precision::bf16), resumed(kind, Precision::bf16);
    for (int t = 0; t < 3; ++t) straight.step();
    resumed.arena.load_state_dict(straight.arena.state_dict());
    resumed.optimizer->load_state_dict(straight.optimizer->state_dict());
    resumed.state.write(straight.state.read());
    for (int t = 0; t < 3; ++t) {
      straight.step();
      resumed.step();
    }
    EXPECT_EQ(straight.arena.weights_hash(), resumed.arena.weights_hash()) << kind;
    EXPECT_NE(OptimTraining(kind, Precision::bf16).arena.weights_hash(), resumed.arena.weights_hash())
        << kind;
  }
}

TEST(Optimizer, LoadingNamesWhatIsMissingExtraOrOfAnotherKind) {
  OptimTraining adam("adam"), sgd("momentum");
  const std::uint64_t before = adam.arena.weights_hash();
  EXPECT_ERROR(ArgumentError, adam.optimizer->load_state_dict(sgd.optimizer->state_dict()), "adam");
  StateDict missing, extra = adam.optimizer->state_dict();
  for (const StateDict::Entry& entry : extra) {
    if (entry.name != "first_moment.wide") missing.set(entry.name, entry.value);
  }
  extra.set("third_moment.wide", 1.0);
  EXPECT_ERROR(ArgumentError, adam.optimizer->load_state_dict(missing), "first_moment.wide");
  EXPECT_ERROR(ArgumentError, adam.optimizer->load_state_dict(extra), "third_moment.wide");
  StateDict weights = sgd.arena.state_dict();
  weights.set("more", 1.0);
  EXPECT_ERROR(ArgumentError, adam.arena.load_state_dict(weights), "more");
  EXPECT_EQ(adam.arena.weights_hash(), before);
}

// Muon's own state is checked before that of its rest is loaded, and the other way round.
TEST(Optimizer, LoadingWritesAllOrNothing) {
  for (const std::string kind : {"muon", "adam"}) {
    OptimTraining trained(kind), fresh(kind);
    trained.step();
    const StateDict whole = trained.optimizer->state_dict();
    const auto now = [&] {
      std::vector<std::vector<std::byte>> values;
      for (const StateDict::Entry& entry : fresh.optimizer->state_dict()) {
        if (const Tensor* tensor = std::get_if<Tensor>(&entry.value)) values.push_back(bytes_of(*tensor));
        if (const auto* count = std::get_if<std::int64_t>(&entry.value)) {
          values.emplace_back(static_cast<std::size_t>(*count));
        }
      }
      return values;
    };
    const auto before = now();
    for (const StateDict::Entry& left_out : whole) {
      StateDict part;
      for (const StateDict::Entry& entry : whole) {
        if (entry.name != left_out.name) part.set(entry.name, entry.value);
      }
      EXPECT_THROW(fresh.optimizer->check_state_dict(part), ArgumentError) << left_out.name;
      EXPECT_THROW(fresh.optimizer->load_state_dict(part), ArgumentError) << left_out.name;
      EXPECT_EQ(now(), before) << kind << " without " << left_out.name;
    }
    fresh.optimizer->check_state_dict(whole);
    EXPECT_EQ(now(), before) << kind << ": checking loads nothing";
    fresh.optimizer->load_state_dict(whole);
    EXPECT_NE(now(), before) << kind;
  }
}

TEST(Optimizer, AStepAllocatesNothing) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  for (const std::string kind : kOptimizerKinds) {
    if (kind == "muon_bf16") continue;  // oneDNN's matrix product makes objects of its own
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
      for (const bool fused : {false, true}) {
        OptimTraining training(kind, precision);
        training.average({}, fused);
        training.frozen[2] = true;  // so that something is left to the averages' own pass
        for (int t = 0; t < 3; ++t) training.step();
        const std::int64_t growths = allocator_of(kCpu).stats().growths;
        const std::int64_t news = test::operator_news();
        const ForbidSync no_waiting;
        training.step();
        const std::int64_t made = test::operator_news() - news;
        EXPECT_EQ(made, 0) << kind << " " << fused;
        EXPECT_EQ(allocator_of(kCpu).stats().growths, growths) << kind << " " << fused;
      }
    }
  }
}

TEST(Optimizer, GroupsHaveTheirOwnRateDecayAndMomentum) {
  const Tensor a = filled({2}, {1, 1}), b = filled({1}, {1}), c = filled({1}, {1}), d = filled({1}, {1});
  ParameterArena arena({{"a.weight", a}, {"a.bias", b, false, false}, {"rest", c}, {"fixed", d}}, {});
  Sgd sgd(
      arena,
      {Sgd::Group{{.parameters = selectors::under("a."), .lr_scale = 2}, {.weight_decay = 0.5f}},
       Sgd::Group{
           {.parameters = selectors::named({"rest"}), .lr_scale = 0.5, .schedule = schedules::constant(0.5)},
           {}}},
      0);
  StepBuffer state;
  sgd.set_learning_rates(state, schedules::linear(0.1, 10));
  EXPECT_FLOAT_EQ(state->learning_rate[0], 0.2f);
  EXPECT_FLOAT_EQ(state->learning_rate[1], 0.25f);
  state->applied_steps = 5;
  sgd.set_learning_rates(state, schedules::linear(0.1, 10));
  EXPECT_FLOAT_EQ(state->learning_rate[0], 0.1f);
  deliver(a, {1, 2});
  deliver(b, {1});
  deliver(c, {1});
  deliver(d, {1});
  sgd.step(state);
  EXPECT_FLOAT_EQ(a.data<float>()[0], 1 - 0.1f * 1.5f);
  EXPECT_FLOAT_EQ(a.data<float>()[1], 1 - 0.1f * 2.5f);
  EXPECT_FLOAT_EQ(b.data<float>()[0], 0.9f) << "decay is off for this parameter";
  EXPECT_FLOAT_EQ(c.data<float>()[0], 0.75f);
  EXPECT_EQ(d.data<float>()[0], 1) << "in no group";
  EXPECT_EQ(sgd.selected(), (std::vector<int>{0, 1, 2}));
}

TEST(Optimizer, AParameterMayHaveAFactorOfItsRate) {
  for (const char* const kind : kOptimizerKinds) {
    OptimTraining usual(kind), half(kind);
    test::OptimModel model;
    for (Parameter& one : model.parameters) one.lr_scale = 0.5f;
    OptimTraining scaled(kind, Precision::f32, std::move(model));
    half.schedule = schedules::cosine(0.005, 100);
    for (OptimTraining* training : {&usual, &half, &scaled}) {
      for (int step = 0; step < 3; ++step) training->step();
    }
    EXPECT_EQ(scaled.arena.weights_hash(), half.arena.weights_hash()) << kind;
    EXPECT_NE(scaled.arena.weights_hash(), usual.arena.weights_hash()) << kind;
  }
}

TEST(Optimizer, SkipsParametersWithoutAGradient) {
  const Tensor a = filled({2}, {1, 2}), b = filled({2}, {3, 4});
  ParameterArena arena({{"a", a}, {"b", b}}, {});
  Sgd sgd(arena, {.momentum = 0.9f, .weight_decay = 0.1f});
  StepBuffer state;
  state->learning_rate[0] = 0.1f;
  deliver(a, {1, 1});
  deliver(b, {1, 1});
  sgd.step(state);
  const auto before = bytes_of(b);
  arena.zero_grad();
  deliver(a, {1, 1});
  sgd.step(state);
  EXPECT_EQ(bytes_of(b), before);
  EXPECT_NE(a.data<float>()[0], 1 - 0.11f);
}

TEST(Optimizer, GradientsAreLeftAlone) {
  const Tensor w = filled({3}, {1, 2, 3});
  ParameterArena arena({{"w", w}}, {});
  Sgd sgd(arena, {.momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true});
  GradientMeter meter(arena);
  StepBuffer state;
  state->learning_rate[0] = 0.1f;
  deliver(w, {10, -20, 30});
  const auto before = bytes_of(arena.gradient(0));
  meter.measure(state, {.max_norm = 1, .max_value = 0.5f});
  sgd.step(state);
  EXPECT_EQ(bytes_of(arena.gradient(0)), before);
}

}  // namespace athanor::optim_test
