// Our optimizers over 100 steps of a fixed gradient sequence, against the same formulas in f64, and against
// the error PyTorch's f32 optimizers have there (tests/golden/make_optim_golden.py).

#include <cmath>
#include <fstream>
#include <memory>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "autograd/engine.h"
#include "kernels/hash.h"
#include "optim/adam.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "optim/step.h"

namespace athanor::optim_golden_test {

using Json = nlohmann::json;
using Values = std::vector<double>;

constexpr std::uint64_t kSeed = 12345;
constexpr int kSteps = 100;
constexpr std::int64_t kRows = 24, kColumns = 40, kCount = kRows * kColumns;

double uniform(std::int64_t index) {
  const std::uint64_t key = static_cast<std::uint64_t>(index) * 0x9e3779b97f4a7c15ull + kSeed;
  return static_cast<double>(kernels::mix64(key) >> 40) / (1 << 23) - 1.0;
}

Values initial_weights() {
  Values w;
  for (std::int64_t i = 0; i < kCount; ++i) w.push_back(uniform(i));
  return w;
}

Values gradient(int step) {
  Values g;
  for (std::int64_t i = 0; i < kCount; ++i) {
    g.push_back((uniform(kCount * (step + 1) + i) + 0.5 * uniform(i)) *
                std::exp2(-static_cast<double>(i % 8)));
  }
  return g;
}

Tensor as_f32(const Values& values, const Shape& shape) {
  return Tensor::from(std::vector<float>(values.begin(), values.end()), shape);
}

// The f64 reference ----------------------------------------------------------------------------------------

Values sgd_f64(const Json& o) {
  const double lr = o.at("lr"), mu = o.value("momentum", 0.0), tau = o.value("dampening", 0.0),
               lambda = o.value("weight_decay", 0.0);
  const bool nesterov = o.value("nesterov", false);
  Values w = initial_weights(), b(kCount);
  for (int t = 0; t < kSteps; ++t) {
    const Values gradients = gradient(t);
    for (std::size_t i = 0; i < kCount; ++i) {
      double g = gradients[i] + lambda * w[i];
      b[i] = t == 0 ? g : mu * b[i] + (1 - tau) * g;
      if (mu != 0) g = nesterov ? g + mu * b[i] : b[i];
      w[i] -= lr * g;
    }
  }
  return w;
}

Values adam_f64(const Json& o, bool decoupled) {
  const Json betas = o.value("betas", Json{0.9, 0.999});
  const double lr = o.at("lr"), beta1 = betas.at(0), beta2 = betas.at(1), eps = o.value("eps", 1e-8),
               lambda = o.value("weight_decay", 0.0);
  Values w = initial_weights(), m(kCount), v(kCount);
  for (int t = 1; t <= kSteps; ++t) {
    const Values gradients = gradient(t - 1);
    for (std::size_t i = 0; i < kCount; ++i) {
      const double g = gradients[i] + (decoupled ? 0 : lambda * w[i]);
      if (decoupled) w[i] *= 1 - lr * lambda;
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double mean = m[i] / (1 - std::pow(beta1, t)), square = v[i] / (1 - std::pow(beta2, t));
      w[i] -= lr * mean / (std::sqrt(square) + eps);
    }
  }
  return w;
}

// x [kRows, kColumns], as the formula is written: a X + (b A + c A A) X.
Values newton_schulz_f64(Values x, int iterations) {
  double square = 0;
  for (double v : x) square += v * v;
  for (double& v : x) v /= std::sqrt(square);
  const auto n = static_cast<std::size_t>(kRows), m = static_cast<std::size_t>(kColumns);
  for (int step = 0; step < iterations; ++step) {
    Values gram(n * n), poly(n * n), next(n * m);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t k = 0; k < m; ++k) gram[i * n + j] += x[i * m + k] * x[j * m + k];
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        poly[i * n + j] = -4.7750 * gram[i * n + j];
        for (std::size_t k = 0; k < n; ++k) poly[i * n + j] += 2.0315 * gram[i * n + k] * gram[k * n + j];
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < m; ++j) {
        next[i * m + j] = 3.4445 * x[i * m + j];
        for (std::size_t k = 0; k < n; ++k) next[i * m + j] += poly[i * n + k] * x[k * m + j];
      }
    }
    x = std::move(next);
  }
  return x;
}

Values muon_f64(const Json& o) {
  const double lr = o.at("lr"), mu = o.at("momentum"), lambda = o.at("weight_decay");
  const bool nesterov = o.value("nesterov", true), rms = o.contains("adjust_lr_fn");
  const double scale = rms ? 0.2 * std::sqrt(static_cast<double>(kColumns)) : 1;
  Values w = initial_weights(), b(kCount);
  for (int t = 0; t < kSteps; ++t) {
    const Values g = gradient(t);
    Values u(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      b[i] = mu * b[i] + (1 - mu) * g[i];
      u[i] = nesterov ? (1 - mu) * g[i] + mu * b[i] : b[i];
    }
    const Values x = newton_schulz_f64(std::move(u), o.value("ns_steps", 5));
    for (std::size_t i = 0; i < kCount; ++i) w[i] = w[i] * (1 - lr * lambda) - lr * scale * x[i];
  }
  return w;
}

// Ours -----------------------------------------------------------------------------------------------------

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, ParameterArena& arena, const Json& o) {
  const float lambda = o.value("weight_decay", 0.0f);
  if (name.starts_with("adam")) {
    const Json betas = o.value("betas", Json{0.9, 0.999});
    const double beta1 = betas.at(0), beta2 = betas.at(1);
    const float eps = o.value("eps", 1e-8f);
    if (name.starts_with("adamw")) {
      return std::make_unique<AdamW>(arena, AdamWOptions{beta1, beta2, eps, lambda});
    }
    return std::make_unique<Adam>(arena, AdamOptions{beta1, beta2, eps, lambda});
  }
  if (name.starts_with("muon")) {
    MuonOptions options{
        .momentum = o.at("momentum"), .nesterov = o.value("nesterov", true), .weight_decay = lambda};
    options.scale = o.contains("adjust_lr_fn") ? MuonScale::rms : MuonScale::original;
    options.iterations = o.value("ns_steps", 5);
    options.dtype = name.ends_with("bf16") ? DType::bf16 : DType::f32;
    return std::make_unique<Muon>(arena, std::vector<Muon::Group>{{{}, options}}, 0, nullptr);
  }
  return std::make_unique<Sgd>(arena, SgdOptions{o.value("momentum", 0.0f), o.value("dampening", 0.0f),
                                                 lambda, o.value("nesterov", false)});
}

Values run_ours(const std::string& name, const Json& options) {
  const Tensor w = as_f32(initial_weights(), {kRows, kColumns});
  require_grad(w);
  ParameterArena arena({{"w", w}}, {});
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(name, arena, options);
  StepBuffer state;
  state->learning_rate[0] = options.at("lr");
  for (int t = 0; t < kSteps; ++t) {
    arena.zero_grad();
    leaf_of(w).accumulate(as_f32(gradient(t), {kRows, kColumns}));
    optimizer->step(state);
    finish_step(state);
  }
  return w.to_vector();
}

struct Errors {
  double rms = 0, max = 0;
};

Errors errors_of(const Values& got, const Values& reference) {
  Errors errors;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - reference[i]);
    errors.rms += error * error;
    errors.max = std::max(errors.max, error);
  }
  errors.rms = std::sqrt(errors.rms / static_cast<double>(got.size()));
  return errors;
}

const Json& golden() {
  static const Json json = Json::parse(std::ifstream(ATHANOR_GOLDEN_DIR "/optim.json"));
  return json;
}

void expect_same_formula(const Json& test_case, const Values& reference, double tolerance) {
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(test_case["first"][i].get<double>(), reference[i], tolerance) << i;
}

// Of PyTorch's loop and its fused kernel.
Errors better_of(const Json& a, const Json& b) {
  return {std::min(a["rms"].get<double>(), b["rms"].get<double>()),
          std::min(a["max"].get<double>(), b["max"].get<double>())};
}

class GoldenOptimizer : public testing::TestWithParam<const char*> {};

TEST_P(GoldenOptimizer, ErrsAtMostTwiceAsMuchAsPyTorch) {
  const std::string name = GetParam();
  const Json& test_case = golden()["cases"][name];
  const Json& options = test_case["options"];
  const Values reference =
      name.starts_with("adam") ? adam_f64(options, name.starts_with("adamw")) : sgd_f64(options);
  expect_same_formula(test_case, reference, 4 * test_case["default"]["max"].get<double>());
  const Errors ours = errors_of(run_ours(name, options), reference);
  const Errors torch = better_of(test_case["default"], test_case["fused"]);
  RecordProperty("rms_error_over_torch", std::to_string(ours.rms / torch.rms));
  RecordProperty("max_error_over_torch", std::to_string(ours.max / torch.max));
  EXPECT_LE(ours.rms, 2 * torch.rms);
  EXPECT_LE(ours.max, 2 * torch.max);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenOptimizer,
                         testing::Values("sgd", "sgd_decay", "momentum", "momentum_dampening_decay",
                                         "nesterov_decay", "adam", "adam_decay", "adamw", "adamw_fast"),
                         [](const auto& test) { return std::string(test.param); });

TEST(GoldenMuon, StaysWithinItsErrorBudget) {
  for (const std::string name : {"muon", "muon_rms"}) {
    const Json& test_case = golden()["cases"][name];
    const Values reference = muon_f64(test_case["options"]);
    // PyTorch iterates in bf16.
    expect_same_formula(test_case, reference, 2e-2);
    const Errors f32 = errors_of(run_ours(name, test_case["options"]), reference);
    const Errors bf16 = errors_of(run_ours(name + "_bf16", test_case["options"]), reference);
    RecordProperty(name + "_f32_max", std::to_string(f32.max));
    RecordProperty(name + "_bf16_max", std::to_string(bf16.max));
    EXPECT_LE(f32.max, 1e-4);
    EXPECT_LE(bf16.max, 2e-2);
    EXPECT_LE(bf16.rms, 3 * test_case["default"]["rms"].get<double>());
  }
}

}  // namespace athanor::optim_golden_test
