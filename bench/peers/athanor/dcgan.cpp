// The networks and the step of examples/dcgan.cpp, as they are there. bench/peers/pytorch/dcgan.py is the
// same in PyTorch.
#define main example_main
#include "../../../examples/dcgan.cpp"
#undef main

#include <cmath>
#include <cstdlib>

#include "autograd/engine.h"
#include "bench/peers/athanor/worker.h"
#include "nn/torch/torch_layout.h"

namespace athanor::peers {
namespace {

constexpr std::int64_t kBatch = 64, kSteps = 5;

// As PyTorch has them, so that both sides begin with the same: convolutions small and made up, norms as new.
void make_up_weights(nn::Module& network) {
  const StateDict fresh = nn::to_torch_layout(network, network.state_dict());
  StateDict weights;
  for (const std::string& name : fresh.names()) {
    if (name.ends_with("num_batches_tracked")) continue;
    const Tensor value = fresh.tensor(name);
    weights.set(name, value.rank() == 4 ? affine(made_up(value.shape(), 0), 0.05) : value);
  }
  network.load_state_dict(nn::from_torch_layout(network, weights));
}

// Losses of a first step, and how large the gradients are, in f64: in f32 the norms alone make them differ
// by 5e-5.
std::vector<double> check() {
  Dcgan task;
  task.networks().initialize(0);
  make_up_weights(task.generator);
  make_up_weights(task.discriminator);
  task.networks().to(DType::f64);
  const Tensor real = cast(made_up({kBatch, 28, 28, 1}, 1), DType::f64),
               noise = cast(made_up({kBatch, 1, 1, 100}, 2), DType::f64);
  const Tensor fake = task.generator(noise);
  const Tensor of_real = bce_with_logits(task.discriminator(real), 1),
               of_fake = bce_with_logits(task.discriminator(fake), 1);
  const Tensor loss = of_real + of_fake;
  backward(loss);
  std::vector<double> values{of_real.item(), of_fake.item()};
  for (const Parameter& parameter : task.networks().parameters())
    if (parameter.tensor.rank() == 4)
      values.push_back(std::sqrt(sum(square(grad_of(parameter.tensor))).item()));
  return values;
}

Ready prepare(Precision precision) {
  const char* const folder = std::getenv("ATHANOR_DATA_DIR");
  ATH_CHECK(folder, "dcgan: ATHANOR_DATA_DIR must name the folder with mnist/, but is not set");
  struct Training {
    Dcgan task;
    std::unique_ptr<Dataset> digits;
    TrainerConfig config{.program = "dcgan", .max_steps = kSteps, .batch_size = kBatch};
  };
  const auto training = std::make_shared<Training>();
  training->digits = mnist(std::filesystem::path(folder) / "mnist", Split::train);
  training->config.pixel_mean = training->config.pixel_stddev = {0.5};
  training->config.precision = precision;
  training->task.networks().initialize(0);
  return {[training] { Trainer(training->config).fit(training->task, *training->digits); }, check()};
}

}  // namespace
}  // namespace athanor::peers

int main() {
  using namespace athanor;
  std::vector<peers::PeerCase> cases;
  for (const Precision precision : {Precision::f32, Precision::bf16})
    cases.push_back({fmt::format("dcgan/{}/5_steps_of_64", name_of(precision)), 0,
                     [precision] { return peers::prepare(precision); }});
  return peers::serve(cases);
}
