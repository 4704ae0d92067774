#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "autograd/engine.h"
#include "bench/support/bench.h"
#include "bench/support/shapes.h"
#include "kernels/hash.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "optim/step.h"

// Updates of all parameters of a network: each moves its bytes once, and should take as long as copying them.

namespace athanor::bench {
namespace {

struct Network {
  const char* name;
  std::vector<Shape> shapes;
};

struct Setup {
  std::vector<Parameter> parameters;
  std::unique_ptr<ParameterArena> arena;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Ema> ema;
  std::unique_ptr<GradientMeter> meter;
  StepBuffer state;
};

std::shared_ptr<Setup> make_setup(Precision precision, const std::vector<Shape>& shapes) {
  auto setup = std::make_shared<Setup>();
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Tensor w = filled(shapes[i], DType::f32, -1, 1, i);
    require_grad(w);
    setup->parameters.push_back({std::to_string(i), w});
  }
  setup->arena = std::make_unique<ParameterArena>(setup->parameters, std::vector<NamedTensor>{},
                                                  ArenaOptions{.precision = precision});
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    leaf_of(setup->parameters[i].tensor)
        .accumulate(filled(shapes[i], compute_dtype(precision), -1, 1, 100 + i));
  }
  setup->meter = std::make_unique<GradientMeter>(*setup->arena);
  setup->state->learning_rate[0] = 1e-3f;
  return setup;
}

enum class Averages : std::uint8_t { none, fused, separate };

/// One update of every parameter, and of its average.
struct UpdateCase {
  const char* name;
  int slots;  ///< f32 of state per parameter
  std::function<std::unique_ptr<Optimizer>(ParameterArena&)> make;
  std::function<double(double w, double g)> expected;  ///< weight after the first step
};

// Bytes: gradient read; master, state and average read and written; copy written. The average's own pass
// reads the masters once more.
void add_update(const UpdateCase& update, const Network& network, Precision precision, Averages averages) {
  const auto count = static_cast<double>(total(network.shapes));
  const DType dtype = compute_dtype(precision);
  double each = static_cast<double>(size_of(dtype)) * (dtype == DType::f32 ? 1 : 2) + 8 * (1 + update.slots);
  if (averages != Averages::none) each += averages == Averages::fused ? 8 : 12;
  const char* const impl = averages == Averages::none    ? "athanor"
                           : averages == Averages::fused ? "ema_fused"
                                                         : "ema_separate";
  add({update.name, "step", dtype, network.name, impl}, {.bytes = count * each, .elements = count}, [=] {
    const std::shared_ptr<Setup> setup = make_setup(precision, network.shapes);
    setup->optimizer = update.make(*setup->arena);
    if (averages != Averages::none) setup->ema = std::make_unique<Ema>(*setup->arena);
    if (averages == Averages::fused) setup->ema->fuse_into(*setup->optimizer);
    const auto step = [setup = setup.get()] {
      setup->optimizer->step(setup->state);
      if (setup->ema) setup->ema->update(setup->state);
    };
    const Tensor master = setup->arena->master(0);
    const std::vector<double> w = master.to_vector(), g = setup->arena->gradient(0).to_vector();
    step();
    std::vector<double> reference;
    for (std::size_t i = 0; i < w.size(); ++i) reference.push_back(update.expected(w[i], g[i]));
    return Prepared{[setup, step] { step(); }, max_error(master, reference), 1e-6};
  });
}

void add_norm(Precision precision) {
  const std::vector<Shape> shapes = resnet18_shapes();
  const DType dtype = compute_dtype(precision);
  add({"gradient_norm", "step", dtype, "resnet18"},
      {.bytes = static_cast<double>(total(shapes)) * static_cast<double>(size_of(dtype))}, [=] {
        const std::shared_ptr<Setup> setup = make_setup(precision, shapes);
        double square = 0;
        for (int i = 0; i < setup->arena->size(); ++i) {
          for (double g : setup->arena->gradient(i).to_vector()) square += g * g;
        }
        setup->meter->measure(setup->state, {.max_norm = 1});
        return Prepared{[setup] { setup->meter->measure(setup->state, {.max_norm = 1}); },
                        std::abs(setup->state->grad_norm / std::sqrt(square) - 1), 1e-6};
      });
}

void add_average() {
  const std::vector<Shape> shapes = resnet18_shapes();
  add({"ema", "step", DType::f32, "resnet18"}, {.bytes = 12.0 * static_cast<double>(total(shapes))}, [=] {
    const std::shared_ptr<Setup> setup = make_setup(Precision::f32, shapes);
    const auto ema = std::make_shared<Ema>(*setup->arena);
    return Prepared{[setup, ema] { ema->update(setup->state); }, 0, 0};
  });
}

void add_hash() {
  const std::vector<Shape> shapes = resnet18_shapes();
  add({"weights_hash", "step", DType::f32, "resnet18"}, {.bytes = 4.0 * static_cast<double>(total(shapes))},
      [=] {
        const std::shared_ptr<Setup> setup = make_setup(Precision::f32, shapes);
        return Prepared{[setup] { (void)setup->arena->weights_hash(); }, 0, 0};
      });
}

// FLOPs of 5 iterations of 4 n^2 m + 2 n^3 each, over all matrices.
double muon_flops(const std::vector<Shape>& shapes) {
  double flops = 0;
  for (const Shape& shape : shapes) {
    if (shape.rank() < 2) continue;
    const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape.numel()) / rows;
    const double n = std::min(rows, columns), m = std::max(rows, columns);
    flops += 5 * (4 * n * n * m + 2 * n * n * n);
  }
  return flops;
}

void add_muon(const Network& network, DType dtype) {
  add({"muon", "step", dtype, network.name}, {.flops = muon_flops(network.shapes)}, [=] {
    const std::shared_ptr<Setup> setup = make_setup(Precision::f32, network.shapes);
    const MuonOptions options{.dtype = dtype};
    const bool all = std::all_of(network.shapes.begin(), network.shapes.end(),
                                 [](const Shape& shape) { return shape.rank() >= 2; });
    if (all) {
      setup->optimizer =
          std::make_unique<Muon>(*setup->arena, std::vector<Muon::Group>{{{}, options}}, 0, nullptr);
    } else {
      setup->optimizer = std::make_unique<Muon>(*setup->arena, options, SgdOptions{}, 1.0f);
    }
    return Prepared{[setup] { setup->optimizer->step(setup->state); }, 0, 0};
  });
}

}  // namespace

void register_all() {
  const UpdateCase sgd{"sgd", 0, [](ParameterArena& arena) { return std::make_unique<Sgd>(arena); },
                       [](double w, double g) { return w - 1e-3 * g; }};
  const UpdateCase momentum{
      "sgd_momentum", 1,
      [](ParameterArena& arena) { return std::make_unique<Sgd>(arena, SgdOptions{.momentum = 0.9f}); },
      [](double w, double g) { return w - 1e-3 * g; }};
  const UpdateCase adamw{"adamw", 2, [](ParameterArena& arena) { return std::make_unique<AdamW>(arena); },
                         [](double w, double g) { return w - 1e-3 * (0.01 * w + g / (std::abs(g) + 1e-8)); }};
  const Network resnet50{"resnet50", resnet50_shapes()}, flat{"flat", flat_shapes()};
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    add_update(sgd, resnet50, precision, Averages::none);
    for (const UpdateCase& update : {momentum, adamw}) {
      add_update(update, flat, precision, Averages::none);
      for (const Averages averages : {Averages::none, Averages::fused, Averages::separate}) {
        add_update(update, resnet50, precision, averages);
      }
    }
    add_norm(precision);
  }
  add_average();
  add_hash();
  const Network small{"16x64x576", std::vector<Shape>(16, Shape{64, 3, 3, 64})};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    add_muon({"256x2304", {{256, 3, 3, 256}}}, dtype);
    add_muon(small, dtype);
    add_muon({"resnet18", resnet18_shapes()}, dtype);
  }
}

}  // namespace athanor::bench
