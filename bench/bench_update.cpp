#include <cmath>
#include <memory>
#include <string>

#include "autograd/engine.h"
#include "bench/support/bench.h"
#include "kernels/hash.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "optim/step.h"

// Updates of the parameters of a ResNet-18 for CIFAR: 11.2 M in 62 tensors, from 64 elements to 2.4 M.

namespace athanor::bench {
namespace {

std::vector<Shape> resnet18_shapes() {
  std::vector<Shape> shapes = {{64, 3, 3, 3}, {64}, {64}};
  std::int64_t in = 64;
  for (const std::int64_t out : {64, 64, 128, 128, 256, 256, 512, 512}) {
    shapes.insert(shapes.end(), {{out, 3, 3, in}, {out}, {out}, {out, 3, 3, out}, {out}, {out}});
    if (in != out) shapes.insert(shapes.end(), {{out, 1, 1, in}, {out}, {out}});
    in = out;
  }
  shapes.insert(shapes.end(), {{10, 512}, {10}});
  return shapes;
}

struct Setup {
  std::vector<Parameter> parameters;
  std::unique_ptr<ParameterArena> arena;
  std::unique_ptr<Optimizer> optimizer;
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
  setup->arena =
      std::make_unique<ParameterArena>(setup->parameters, std::vector<NamedTensor>{}, precision, kCpu);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    leaf_of(setup->parameters[i].tensor)
        .accumulate(filled(shapes[i], compute_dtype(precision), -1, 1, 100 + i));
  }
  setup->meter = std::make_unique<GradientMeter>(*setup->arena);
  setup->state->learning_rate[0] = 1e-3f;
  return setup;
}

std::int64_t total(const std::vector<Shape>& shapes) {
  std::int64_t n = 0;
  for (const Shape& shape : shapes) n += shape.numel();
  return n;
}

/// Error of the first step's first parameter against `expected(w, g)` in f64.
template <class F> double first_step_error(Setup& setup, const F& expected) {
  const Tensor master = setup.arena->master(0);
  const std::vector<double> w = master.to_vector(), g = setup.arena->gradient(0).to_vector();
  setup.optimizer->step(setup.state);
  std::vector<double> reference;
  for (std::size_t i = 0; i < w.size(); ++i) reference.push_back(expected(w[i], g[i]));
  return max_error(master, reference);
}

// State is `slots` f32 per parameter. Bytes: gradient read; master and state read and written; copy written.
template <class Make, class F>
void add_optimizer(const char* name, int slots, Precision precision, const Make& make, const F& expected) {
  const std::vector<Shape> shapes = resnet18_shapes();
  const auto count = static_cast<double>(total(shapes));
  const DType dtype = compute_dtype(precision);
  const double element = static_cast<double>(size_of(dtype)), copy = dtype == DType::f32 ? 0 : element;
  add({name, "step", dtype, "resnet18"}, {.bytes = count * (element + 8 * (1 + slots) + copy)}, [=] {
    const std::shared_ptr<Setup> setup = make_setup(precision, shapes);
    setup->optimizer = make(*setup->arena);
    const double error = first_step_error(*setup, expected);
    return Prepared{[setup] { setup->optimizer->step(setup->state); }, error, 1e-6};
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

// One 256 x 2304 matrix, the middle of the network. 5 iterations of 4 n^2 m + 2 n^3.
void add_muon(DType dtype) {
  const double n = 256, m = 2304;
  add({"muon", "step", dtype, "256x2304"}, {.flops = 5 * (4 * n * n * m + 2 * n * n * n)}, [=] {
    const std::shared_ptr<Setup> setup = make_setup(Precision::f32, {{256, 3, 3, 256}});
    const MuonOptions options{.dtype = dtype};
    setup->optimizer =
        std::make_unique<Muon>(*setup->arena, std::vector<Muon::Group>{{{}, options}}, 0, nullptr);
    return Prepared{[setup] { setup->optimizer->step(setup->state); }, 0, 0};
  });
}

}  // namespace

void register_all() {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    add_optimizer(
        "sgd", 0, precision, [](ParameterArena& arena) { return std::make_unique<Sgd>(arena); },
        [](double w, double g) { return w - 1e-3 * g; });
    add_optimizer(
        "sgd_nesterov", 1, precision,
        [](ParameterArena& arena) {
          return std::make_unique<Sgd>(arena, SgdOptions{.momentum = 0.9f, .nesterov = true});
        },
        [](double w, double g) { return w - 1e-3 * 1.9 * g; });
    add_optimizer(
        "adamw", 2, precision, [](ParameterArena& arena) { return std::make_unique<AdamW>(arena); },
        [](double w, double g) { return w - 1e-3 * (0.01 * w + g / (std::abs(g) + 1e-8)); });
    add_norm(precision);
  }
  add_average();
  add_hash();
  add_muon(DType::f32);
  add_muon(DType::bf16);
}

}  // namespace athanor::bench
