#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "autograd/engine.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/muon.h"
#include "optim/optimizer.h"
#include "optim/sgd.h"
#include "optim/step.h"
#include "tests/support/count_new.h"

namespace athanor {
namespace {

Tensor filled(const Shape& shape, std::vector<float> values) {
  Tensor x = Tensor::from(values, shape);
  require_grad(x);
  return x;
}

void deliver(const Tensor& leaf, std::vector<float> gradient) {
  leaf_of(leaf).accumulate(Tensor::from(gradient, leaf.shape()));
}

std::vector<std::byte> bytes_of(const Tensor& x) {
  return {x.raw_data(), x.raw_data() + x.bytes()};
}

// By hand, mu = 0.5, lambda = 0.1, lr = 0.2, w = 1, g = 1 twice: g' = 1.1, b = 1.1, w = 0.78;
// g' = 1.078, b = 0.55 + 1.078 = 1.628, w = 0.78 - 0.3256 = 0.4544.
TEST(Sgd, TwoStepsByHand) {
  const Tensor w = filled({1}, {1});
  ParameterArena arena({{"w", w}}, {});
  Sgd sgd(arena, {.momentum = 0.5f, .weight_decay = 0.1f});
  StepBuffer state;
  state->learning_rate[0] = 0.2f;
  for (const double expected : {0.78, 0.4544}) {
    arena.zero_grad();
    deliver(w, {1});
    sgd.step(state);
    EXPECT_NEAR(w.item(), expected, 1e-7);
  }
}

// Dampening spares the first update: b = g = 1, then 0.5 + 0.75 * 1 = 1.25.
TEST(Sgd, DampeningBeginsAtTheSecondUpdate) {
  const Tensor w = filled({1}, {0});
  ParameterArena arena({{"w", w}}, {});
  Sgd sgd(arena, {.momentum = 0.5f, .dampening = 0.25f});
  StepBuffer state;
  state->learning_rate[0] = 1;
  for (const double expected : {-1.0, -2.25}) {
    arena.zero_grad();
    deliver(w, {1});
    sgd.step(state);
    EXPECT_NEAR(w.item(), expected, 1e-7);
  }
}

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

// By hand, beta1 = beta2 = 0.5, lr = 0.1, g = 2 then -2: m = 1, v = 2, corrected 2 and 4, so w = -0.1;
// m = -0.5, v = 3, corrected -2/3 and 4, so w = -0.1 + 0.1 / 3.
TEST(Adam, TwoStepsByHand) {
  const Tensor w = filled({1}, {0});
  ParameterArena arena({{"w", w}}, {});
  Adam adam(arena, {.beta1 = 0.5, .beta2 = 0.5, .eps = 0});
  StepBuffer state;
  state->learning_rate[0] = 0.1f;
  const double expected[] = {-0.1, -0.1 + 0.1 / 3};
  for (int t = 0; t < 2; ++t) {
    arena.zero_grad();
    deliver(w, {t == 0 ? 2.0f : -2.0f});
    adam.step(state);
    EXPECT_NEAR(w.item(), expected[t], 1e-7);
  }
}

// Decay is decoupled in AdamW: with g = 0 the weight shrinks by lr lambda. In Adam it passes the moments,
// which make a first step of lr whatever its size.
TEST(Adam, DecayIsDecoupledInAdamW) {
  for (const bool decoupled : {false, true}) {
    const Tensor w = filled({1}, {2});
    ParameterArena arena({{"w", w}}, {});
    std::unique_ptr<Optimizer> adam;
    if (decoupled) {
      adam = std::make_unique<AdamW>(arena, AdamWOptions{.weight_decay = 0.5f});
    } else {
      adam = std::make_unique<Adam>(arena, AdamOptions{.weight_decay = 0.5f});
    }
    StepBuffer state;
    state->learning_rate[0] = 0.1f;
    deliver(w, {0});
    adam->step(state);
    EXPECT_NEAR(w.item(), decoupled ? 2 - 0.1 * 0.5 * 2 : 2 - 0.1, 1e-6);
  }
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

// Every kind of optimizer, for what must hold for all of them
// -------------------------------------------------

constexpr const char* kKinds[] = {"sgd", "momentum", "adam", "adamw", "muon", "muon_bf16"};

std::unique_ptr<Optimizer> make(const std::string& kind, ParameterArena& arena) {
  if (kind == "sgd") return std::make_unique<Sgd>(arena);
  if (kind == "momentum") return std::make_unique<Sgd>(arena, SgdOptions{.momentum = 0.9f, .nesterov = true});
  if (kind == "adam") return std::make_unique<Adam>(arena, AdamOptions{.weight_decay = 0.1f});
  if (kind == "adamw") return std::make_unique<AdamW>(arena);
  const MuonOptions options{.dtype = kind == "muon" ? DType::f32 : DType::bf16};
  return std::make_unique<Muon>(arena, options, AdamWOptions{}, 0.5f);
}

float noise(std::int64_t i) {
  return std::sin(static_cast<float>(i) * 12.9898f) * (i % 3 == 0 ? 1.0f : 0.1f);
}

// Three matrices (wide, tall, of a convolution), longer than a chunk in one case, and two vectors.
struct Model {
  std::vector<Parameter> parameters;
  std::vector<NamedTensor> buffers;
  explicit Model(std::int64_t width = 30) {
    const auto add = [&](const char* name, const Shape& shape, bool keep_f32) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(noise(i + 7));
      parameters.push_back({name, filled(shape, values), keep_f32});
    };
    add("conv", {6, 3, 3, 2}, false);
    add("scale", {6}, true);
    add("wide", {8, width}, false);
    add("tall", {width, 5}, false);
    add("bias", {5}, false);
    buffers.push_back({"mean", Tensor::from(std::vector<float>{1, 2}, {2})});
  }
};

struct Training {
  Model model;
  ParameterArena arena;
  std::unique_ptr<Optimizer> optimizer;
  GradientMeter meter{arena};
  StepBuffer state;
  std::vector<Tensor> gradients;

  explicit Training(const std::string& kind, Precision precision = Precision::f32, std::int64_t width = 30)
      : model(width), arena(model.parameters, model.buffers, precision, kCpu), optimizer(make(kind, arena)) {
    for (const Parameter& p : model.parameters) gradients.push_back(Tensor::empty(p.tensor.shape()));
  }

  void step(float poison = 0) {
    arena.zero_grad();
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      if (frozen[p]) continue;
      float* g = gradients[p].data<float>();
      for (std::int64_t i = 0; i < gradients[p].numel(); ++i) {
        g[i] = noise(i * 31 + state->applied_steps * 101 + static_cast<std::int64_t>(p)) + poison;
      }
      leaf_of(model.parameters[p].tensor).accumulate(gradients[p]);
    }
    meter.measure(state, {.max_norm = 5});
    optimizer->set_learning_rates(state, schedule);
    optimizer->step(state);
    if (before_finish) before_finish();
    finish_step(state);
  }

  std::function<void()> before_finish;
  std::vector<bool> frozen = std::vector<bool>(model.parameters.size());  // gets no gradient
  Schedule schedule = schedules::cosine(0.01, 100);
};

TEST(Optimizer, BitsDoNotDependOnTheNumberOfThreads) {
  const int threads = cpu_context().threads();
  for (const std::string kind : kKinds) {
    if (kind.starts_with("muon")) continue;  // its matrix product may sum in another order
    std::vector<std::uint64_t> hashes;
    for (const int n : {1, 2, 3}) {
      cpu_context().set_threads(n);
      Training training(kind, Precision::bf16, 20000);
      for (int t = 0; t < 3; ++t) training.step();
      hashes.push_back(training.arena.weights_hash());
    }
    EXPECT_EQ(hashes[0], hashes[1]) << kind;
    EXPECT_EQ(hashes[0], hashes[2]) << kind;
  }
  cpu_context().set_threads(threads);
}

TEST(Optimizer, RepeatsItselfBitForBit) {
  for (const std::string kind : kKinds) {
    Training a(kind), b(kind);
    for (int t = 0; t < 4; ++t) {
      a.step();
      b.step();
    }
    EXPECT_EQ(a.arena.weights_hash(), b.arena.weights_hash()) << kind;
  }
}

TEST(Optimizer, HalfPrecisionFollowsItsMasters) {
  for (const Precision precision : {Precision::bf16, Precision::f16}) {
    for (const std::string kind : kKinds) {
      Training half(kind, precision), full(kind);
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
  for (const std::string kind : kKinds) {
    Training straight(kind, Precision::bf16), resumed(kind, Precision::bf16);
    for (int t = 0; t < 3; ++t) straight.step();
    resumed.arena.load_state_dict(straight.arena.state_dict());
    resumed.optimizer->load_state_dict(straight.optimizer->state_dict());
    resumed.state.write(straight.state.read());
    for (int t = 0; t < 3; ++t) {
      straight.step();
      resumed.step();
    }
    EXPECT_EQ(straight.arena.weights_hash(), resumed.arena.weights_hash()) << kind;
    EXPECT_NE(Training(kind, Precision::bf16).arena.weights_hash(), resumed.arena.weights_hash()) << kind;
  }
}

TEST(Optimizer, LoadingNamesWhatIsMissingExtraOrOfAnotherKind) {
  const auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "";
  };
  Training adam("adam"), sgd("momentum");
  const std::uint64_t before = adam.arena.weights_hash();
  EXPECT_NE(message([&] { adam.optimizer->load_state_dict(sgd.optimizer->state_dict()); }).find("adam"),
            std::string::npos);
  StateDict missing, extra = adam.optimizer->state_dict();
  for (const StateDict::Entry& entry : extra) {
    if (entry.name != "first_moment.wide") missing.set(entry.name, entry.value);
  }
  extra.set("third_moment.wide", 1.0);
  EXPECT_NE(message([&] { adam.optimizer->load_state_dict(missing); }).find("first_moment.wide"),
            std::string::npos);
  EXPECT_NE(message([&] { adam.optimizer->load_state_dict(extra); }).find("third_moment.wide"),
            std::string::npos);
  StateDict weights = sgd.arena.state_dict();
  weights.set("more", 1.0);
  EXPECT_NE(message([&] { adam.arena.load_state_dict(weights); }).find("more"), std::string::npos);
  EXPECT_EQ(adam.arena.weights_hash(), before);
}

// Muon's own state is checked before that of its rest is loaded, and the other way round.
TEST(Optimizer, LoadingWritesAllOrNothing) {
  for (const std::string kind : {"muon", "adam"}) {
    Training trained(kind), fresh(kind);
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
  for (const std::string kind : kKinds) {
    if (kind == "muon_bf16") continue;  // oneDNN's matrix product makes objects of its own
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
      for (const bool fused : {false, true}) {
        Training training(kind, precision);
        Ema ema(training.arena);
        if (fused) ema.fuse_into(*training.optimizer);
        training.before_finish = [&] { ema.update(training.state); };
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
  Sgd sgd(arena,
          {Sgd::Group{{.parameters = selectors::under("a."), .lr_scale = 2}, {.weight_decay = 0.5f}},
           Sgd::Group{{.parameters = selectors::named({"rest"}), .schedule = schedules::constant(0.25)}, {}}},
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

TEST(Clip, NormCoefficientAndValueByHand) {
  const Tensor a = filled({2}, {0, 0}), b = filled({1}, {0});
  ParameterArena arena({{"a", a}, {"b", b}}, {});
  Sgd sgd(arena);
  GradientMeter meter(arena);
  StepBuffer state;
  state->learning_rate[0] = 1;
  state->loss_scale = 4;
  deliver(a, {12, 16});
  deliver(b, {-48});  // unscaled 3, 4, -12: norm 13
  meter.measure(state);
  EXPECT_FLOAT_EQ(state->grad_norm, 13);
  EXPECT_EQ(state->clip_coefficient, 1);
  meter.measure(state, {.max_norm = 100});
  EXPECT_EQ(state->clip_coefficient, 1);
  meter.measure(state, {.max_norm = 6.5f, .max_value = 3});
  EXPECT_NEAR(state->clip_coefficient, 0.5, 1e-6);
  EXPECT_EQ(state->found_inf, 0);
  sgd.step(state);  // clipped by norm 1.5, 2, -6, then by value
  EXPECT_NEAR(a.data<float>()[0], -1.5, 1e-6);
  EXPECT_NEAR(a.data<float>()[1], -2, 1e-6);
  EXPECT_NEAR(b.data<float>()[0], 3, 1e-6);
  EXPECT_THROW(meter.measure(state, {.max_norm = 0}), ArgumentError);
}

TEST(Clip, LargeGradientsDoNotOverflowTheNorm) {
  for (const std::int64_t n : {4, 100}) {  // less than a vector; several, and some over
    const Tensor w = filled({n}, std::vector<float>(static_cast<std::size_t>(n)));
    ParameterArena arena({{"w", w}}, {});
    GradientMeter meter(arena);
    StepBuffer state;
    deliver(w, std::vector<float>(static_cast<std::size_t>(n), 1e30f));
    meter.measure(state, {.max_norm = 1});
    EXPECT_EQ(state->found_inf, 0) << n;
    EXPECT_FLOAT_EQ(state->grad_norm, std::sqrt(static_cast<float>(n)) * 1e30f);
  }
}

TEST(FoundInf, MakesTheStepANoOpBitForBit) {
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    for (const std::string kind : kKinds) {
      for (const float bad :
           {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        Training skipping(kind, precision), straight(kind, precision);
        Ema ema(skipping.arena);
        skipping.step();
        straight.step();
        ema.update(skipping.state);
        const auto average = bytes_of(std::get<Tensor>(ema.state_dict().begin()->value));
        const std::uint64_t hash = skipping.arena.weights_hash();
        std::vector<std::vector<std::byte>> weights;
        for (const Parameter& p : skipping.model.parameters) weights.push_back(bytes_of(p.tensor));
        skipping.step(bad);
        ema.update(skipping.state);
        EXPECT_EQ(skipping.state->found_inf, 1);
        EXPECT_EQ(skipping.state->applied_steps, 1);
        EXPECT_EQ(skipping.state->overflow_steps, 1);
        EXPECT_EQ(skipping.arena.weights_hash(), hash) << kind;
        EXPECT_EQ(bytes_of(std::get<Tensor>(ema.state_dict().begin()->value)), average);
        for (std::size_t i = 0; i < weights.size(); ++i) {
          EXPECT_EQ(bytes_of(skipping.model.parameters[i].tensor), weights[i]) << kind;
        }
        // The state is untouched too: both go on alike.
        skipping.step();
        straight.step();
        EXPECT_EQ(skipping.arena.weights_hash(), straight.arena.weights_hash()) << kind;
      }
    }
  }
}

// Muon -----------------------------------------------------------------------------------------------------

// With many iterations the singular values of the update settle around 1, whatever those of the gradient.
TEST(Muon, UpdatesAreNearlyOrthogonalForWideAndTallMatrices) {
  for (const Shape& shape : {Shape{4, 9}, Shape{9, 4}, Shape{5, 5}}) {
    std::vector<float> zeros(static_cast<std::size_t>(shape.numel())), gradient;
    for (std::int64_t i = 0; i < shape.numel(); ++i) gradient.push_back(noise(i));
    const Tensor w = filled(shape, zeros);
    ParameterArena arena({{"w", w}}, {});
    // Coefficients whose iteration converges to 1 exactly (the Pade-like 15/8, -10/8, 3/8).
    Muon muon(
        arena,
        {Muon::Group{{},
                     {.scale = MuonScale::none, .coefficients = {1.875f, -1.25f, 0.375f}, .iterations = 40}}},
        0, nullptr);
    StepBuffer state;
    state->learning_rate[0] = 1;
    deliver(w, gradient);
    muon.step(state);
    const std::int64_t rows = shape[0], columns = shape[1], side = std::min(rows, columns);
    const float* x = w.data<float>();
    for (std::int64_t i = 0; i < side; ++i) {
      for (std::int64_t j = 0; j < side; ++j) {
        double dot = 0;
        for (std::int64_t k = 0; k < std::max(rows, columns); ++k) {
          dot += rows <= columns ? double(x[i * columns + k]) * x[j * columns + k]
                                 : double(x[k * columns + i]) * x[k * columns + j];
        }
        EXPECT_NEAR(dot, i == j ? 1 : 0, 1e-4);
      }
    }
  }
}

TEST(Muon, ScalesAndNormalizesByShape) {
  const auto change = [](const MuonOptions& options) {
    const Tensor w = filled({4, 1}, {3, 0, 4, 0});
    ParameterArena arena({{"w", w}}, {});
    Muon muon(arena, {Muon::Group{{}, options}}, 0, nullptr);
    StepBuffer state;
    state->learning_rate[0] = 1;
    deliver(w, {0, 1, 0, 0});
    muon.step(state);
    return w.to_vector();
  };
  const MuonOptions plain{.scale = MuonScale::none, .coefficients = {1.875f, -1.25f, 0.375f}};
  MuonOptions original = plain, rms = plain, normalized = plain, decay = plain;
  original.scale = MuonScale::original;
  rms.scale = MuonScale::rms;
  normalized.normalize_weights = true;
  decay.weight_decay = 0.5f;
  EXPECT_NEAR(change(plain)[1], -1, 1e-6);
  EXPECT_NEAR(change(original)[1], -2, 1e-6);
  EXPECT_NEAR(change(rms)[1], -0.4, 1e-6);
  EXPECT_NEAR(change(normalized)[0], 3 * 2 / 5.0, 1e-6);
  EXPECT_NEAR(change(normalized)[2], 4 * 2 / 5.0, 1e-6);
  EXPECT_NEAR(change(decay)[2], 2, 1e-6);
}

// Matrices of one shape are worked on together, as many as fit; alone each becomes the same. Sizes: many to a
// batch, with a batch left over; three, of which one fits at a time; tall; bf16 weights beside f32 ones. Some
// have no gradient, and take part again later.
TEST(Muon, AMatrixDoesNotDependOnItsBatch) {
  struct Case {
    Shape shape;
    int count;
    Precision precision;
  };
  for (const auto& [shape, count, precision] :
       {Case{{16, 3, 3, 16}, 9, Precision::f32}, Case{{96, 192}, 33, Precision::bf16},
        Case{{600, 450}, 3, Precision::f32}, Case{{40, 8}, 5, Precision::f16}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("{} {} {}", shape, precision == Precision::f32, dtype));
      const MuonOptions options{.weight_decay = 0.1f, .normalize_weights = count == 9, .dtype = dtype};
      const auto numel = static_cast<std::size_t>(shape.numel());
      const auto values = [&](int i, int t) {
        std::vector<float> all;
        for (std::size_t k = 0; k < numel; ++k)
          all.push_back(noise(static_cast<std::int64_t>(k) + i * 77 + t));
        return all;
      };
      const auto has_gradient = [](int i, int t) { return t != 1 || i % 3 != 1; };
      const auto train = [&](int first, int last) {
        std::vector<Parameter> parameters;
        for (int i = first; i < last; ++i) {
          parameters.push_back({std::to_string(i), filled(shape, values(i, 0)), i % 4 == 3});
        }
        ParameterArena arena(parameters, {}, precision, kCpu);
        Muon muon(arena, {Muon::Group{{}, options}}, 0, nullptr);
        StepBuffer state;
        state->learning_rate[0] = 0.1f;
        for (int t = 0; t < 3; ++t) {
          arena.zero_grad();
          for (int i = first; i < last; ++i) {
            if (has_gradient(i, t)) {
              leaf_of(parameters[static_cast<std::size_t>(i - first)].tensor)
                  .accumulate(Tensor::from(values(i, t), shape));
            }
          }
          muon.step(state);
        }
        std::vector<std::vector<std::byte>> results;
        for (int i = first; i < last; ++i) results.push_back(bytes_of(arena.master(i - first)));
        return results;
      };
      const auto together = train(0, count);
      for (int i = 0; i < count; ++i) {
        EXPECT_EQ(together[static_cast<std::size_t>(i)], train(i, i + 1)[0]) << i;
      }
    }
  }
}

TEST(Muon, GroupsOfOneShapeKeepTheirRates) {
  const Tensor a = filled({2, 2}, {1, 2, 3, 4}), b = filled({2, 2}, {1, 2, 3, 4});
  ParameterArena arena({{"a", a}, {"b", b}}, {});
  Muon muon(arena, {Muon::Group{{.parameters = selectors::named({"a"})}, {}}, Muon::Group{}}, 0, nullptr);
  StepBuffer state;
  state->learning_rate[0] = 0.5f;
  state->learning_rate[1] = 0.25f;
  deliver(a, {1, 0, 0, 2});
  deliver(b, {1, 0, 0, 2});
  muon.step(state);
  EXPECT_NE(a.data<float>()[0], 1);
  for (int i = 0; i < 4; ++i) {
    const float start = static_cast<float>(i + 1);
    EXPECT_NEAR(a.data<float>()[i] - start, 2 * (b.data<float>()[i] - start), 1e-6);
  }
}

TEST(Muon, EveryParameterMustBeSelectedOnceAndMatricesAlone) {
  const Model model;
  ParameterArena arena(model.parameters, {});
  EXPECT_THROW(Muon(arena, {Muon::Group{}}, 0, nullptr), ArgumentError) << "vectors are no matrices";
  EXPECT_THROW(Muon(arena, {Muon::Group{{.parameters = selectors::matrices()}, {}}}, 0, nullptr),
               ArgumentError);
  EXPECT_THROW(
      Muon(arena, {Muon::Group{{.parameters = selectors::matrices()}, {}}}, 0, std::make_unique<Sgd>(arena)),
      ArgumentError)
      << "selected twice";
  EXPECT_THROW(Muon(arena, {.iterations = 0}, SgdOptions{}, 1), ArgumentError);
  EXPECT_THROW(Muon(arena, {.dtype = DType::f64}, SgdOptions{}, 1), ArgumentError);
  const Muon muon(arena, {}, SgdOptions{}, 0.5f);
  EXPECT_EQ(muon.selected(), (std::vector<int>{0, 1, 2, 3, 4}));
  StepBuffer state;
  muon.set_learning_rates(state, schedules::constant(0.2));
  EXPECT_FLOAT_EQ(state->learning_rate[0], 0.2f);
  EXPECT_FLOAT_EQ(state->learning_rate[1], 0.1f);
}

// Ema ------------------------------------------------------------------------------------------------------

TEST(Ema, AveragesMastersAndBuffersByHand) {
  const Tensor w = filled({1}, {0}), mean = Tensor::from(std::vector<float>{0}, {1});
  ParameterArena arena({{"w", w}}, {{"mean", mean}}, Precision::bf16, kCpu);
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

// The averages of a run, as bytes, by name.
std::vector<std::vector<std::byte>> values_of(const Ema& ema) {
  std::vector<std::vector<std::byte>> values;
  for (const StateDict::Entry& entry : ema.state_dict())
    values.push_back(bytes_of(std::get<Tensor>(entry.value)));
  return values;
}

// Over 20 steps: some parameters without a gradient part of the time, a step that is skipped, and one without
// the optimizer.
TEST(Ema, FusedAndSeparatePassesGiveTheSameBits) {
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    for (const std::string kind : kKinds) {
      SCOPED_TRACE(kind);
      Training fused(kind, precision, 2200), separate(kind, precision, 2200);  // a matrix of two chunks
      Ema fused_ema(fused.arena, {.decay = 0.9}), separate_ema(separate.arena, {.decay = 0.9});
      fused_ema.fuse_into(*fused.optimizer);
      for (const auto& [training, ema] :
           {std::pair(&fused, &fused_ema), std::pair(&separate, &separate_ema)}) {
        training->before_finish = [training = training, ema = ema] {
          training->model.buffers[0].tensor.data<float>()[0] += 1;
          ema->update(training->state);
        };
        const auto begin = values_of(*ema);
        for (int t = 0; t < 20; ++t) {
          for (std::size_t p = 0; p < training->frozen.size(); ++p) {
            training->frozen[p] = (t / 4 + static_cast<int>(p)) % 3 == 0 || (t == 9 && p != 1);
          }
          training->step(t == 7 ? std::numeric_limits<float>::infinity() : 0);
          if (t == 12) ema->update(training->state);  // as if the optimizer had done nothing
        }
        EXPECT_EQ(training->state->overflow_steps, 1);
        const auto end = values_of(*ema);
        for (std::size_t i = 0; i < end.size(); ++i) EXPECT_NE(end[i], begin[i]) << i;
      }
      EXPECT_EQ(fused.arena.weights_hash(), separate.arena.weights_hash());
      EXPECT_EQ(values_of(fused_ema), values_of(separate_ema));
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

TEST(Ema, FusesIntoOneOptimizerOfItsArena) {
  Training a("muon"), b("sgd");
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
  last.update(b.state);  // nobody but it moves averages now
  EXPECT_EQ(std::get<Tensor>(last.state_dict().begin()->value).data<float>()[0], 5);
}

TEST(Ema, ResumesFromItsState) {
  Training a("sgd"), b("sgd");
  Ema first(a.arena), second(b.arena);
  a.step();
  first.update(a.state);
  second.load_state_dict(first.state_dict());
  first.swap();
  second.swap();
  EXPECT_EQ(a.arena.weights_hash(), b.arena.weights_hash());
}

}  // namespace
}  // namespace athanor
