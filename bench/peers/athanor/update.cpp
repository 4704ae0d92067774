#include <memory>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "bench/peers/athanor/worker.h"
#include "bench/support/shapes.h"
#include "kernels/copy.h"
#include "kernels/cpu/context.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/sgd.h"
#include "optim/step.h"

// Parameter updates: bench/peers/pytorch/update.py is the same in PyTorch.

namespace athanor::peers {
namespace {

struct Network {
  ParameterArena arena;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Ema> ema;
  StepBuffer step;

  Network(const std::vector<Parameter>& parameters, Precision precision)
      : arena(parameters, {}, {.precision = precision}) {}
};

std::vector<Parameter> parameters_of(const std::vector<Shape>& shapes) {
  std::vector<Parameter> parameters;
  for (const Shape& shape : shapes) {
    const Tensor weight = made_up(shape, 0);
    require_grad(weight);
    parameters.push_back({std::to_string(parameters.size()), weight});
  }
  return parameters;
}

Ready prepare(const std::string& op, const std::vector<Shape>& shapes, Precision precision) {
  const auto network = std::make_shared<Network>(parameters_of(shapes), precision);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Tensor gradient = Tensor::empty(shapes[i], {compute_dtype(precision), kCpu});
    kernels::copy(cpu_context(), made_up(shapes[i], 1000), gradient);
    leaf_of(network->arena.parameters()[i].tensor).accumulate(gradient);
  }
  network->step->learning_rate[0] = 1e-3f;
  if (op == "sgd_momentum") {
    network->optimizer =
        std::make_unique<Sgd>(network->arena, SgdOptions{.momentum = 0.9f, .weight_decay = 1e-4f});
  } else {
    network->optimizer = std::make_unique<AdamW>(network->arena, AdamWOptions{.weight_decay = 0.01f});
  }
  if (op == "adamw_ema") {
    network->ema = std::make_unique<Ema>(network->arena, EmaOptions{.decay = 0.999, .warm_up = false});
    network->ema->fuse_into(*network->optimizer);
  }
  const auto run = [network] {
    network->optimizer->step(network->step);
    if (network->ema) network->ema->update(network->step);
  };
  run();
  std::vector<double> check;
  const float* master = network->arena.master(0).data<float>();
  for (int i = 0; i < 8; ++i) check.push_back(double{master[i]});
  return {run, check};
}

}  // namespace
}  // namespace athanor::peers

int main() {
  using namespace athanor;
  std::vector<peers::PeerCase> cases;
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    const DType dtype = compute_dtype(precision);
    const double half = dtype == DType::f32 ? 0 : 2, gradient = dtype == DType::f32 ? 4 : 2;
    for (const std::string name : {"resnet50", "flat", "tiny"}) {
      const std::vector<Shape> shapes = name == "resnet50" ? bench::resnet50_shapes()
                                        : name == "flat"   ? bench::flat_shapes()
                                                           : std::vector<Shape>{{8, 3}, {8}};
      for (const auto& [op, slots] : {std::pair("sgd_momentum", 2), {"adamw", 3}, {"adamw_ema", 4}}) {
        const double bytes = static_cast<double>(bench::total(shapes)) * (gradient + half + 8 * slots);
        cases.push_back(
            {fmt::format("{}/{}/{}", op, name_of(precision), name), bytes,
             [op = std::string(op), shapes, precision] { return peers::prepare(op, shapes, precision); }});
      }
    }
  }
  return peers::serve(cases);
}
