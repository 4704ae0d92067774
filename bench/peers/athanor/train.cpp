// Steps of training as a program makes them: a Trainer, with images in memory. `peer_train DIR` trains the
// networks in DIR, which `peer_infer DIR save NETWORK` has written. bench/peers/pytorch/train.py is the same
// in PyTorch.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/peers/athanor/networks.h"
#include "bench/peers/athanor/worker.h"
#include "data/in_memory.h"
#include "kernels/implementations.h"
#include "trainer/callback.h"
#include "trainer/classifier.h"
#include "trainer/inference/model_file.h"
#include "trainer/trainer.h"

namespace athanor::peers {
namespace {

namespace fs = std::filesystem;

/// Of a network for so many classes: its learning rate, and how many losses both sides must agree on.
struct Rate {
  double lr;
  std::int64_t checked;
};
Rate rate_of(std::int64_t classes) {
  // Deep networks amplify rounding: at 0.002, PyTorch's own f32 is off by 4e-4 after MobileNetV2's first
  // step. At 0.000002, its ResNet-50 with channels_last is 3e-4 off its result without after twelve steps.
  return classes == 1000 ? Rate{0.0000002, 3} : Rate{0.002, 20};
}

/// Noise that the other side makes up, too, where images lie channel by channel.
std::unique_ptr<Dataset> images(const ImageSpec& spec, std::int64_t count) {
  std::vector<std::uint8_t> pixels(
      static_cast<std::size_t>(count * spec.height * spec.width * spec.channels));
  std::vector<std::int64_t> labels(static_cast<std::size_t>(count));
  std::size_t at = 0;
  for (std::int64_t n = 0; n < count; ++n) {
    labels[static_cast<std::size_t>(n)] = n % spec.classes;
    for (std::int64_t y = 0; y < spec.height; ++y) {
      for (std::int64_t x = 0; x < spec.width; ++x) {
        for (std::int64_t c = 0; c < spec.channels; ++c) {
          const std::int64_t index = ((n * spec.channels + c) * spec.height + y) * spec.width + x;
          pixels[at++] = static_cast<std::uint8_t>(noise(static_cast<std::uint32_t>(index)) >> 24);
        }
      }
    }
  }
  return std::make_unique<InMemoryDataset>(spec, std::move(pixels), std::move(labels));
}

TrainerConfig config_of(const ModelFile& saved, const Workload& workload, Precision precision) {
  const Rate rate = rate_of(saved.info.images.classes);
  TrainerConfig config{.program = "peers", .batch_size = workload.batch, .lr = rate.lr};
  config.schedule_options.kind = ScheduleKind::constant;
  config.precision = precision;
  config.decay = Decay::all;  // as PyTorch's optimizers
  return config;
}

struct Training {
  std::shared_ptr<nn::Module> network;
  std::unique_ptr<Classifier> task;
  std::unique_ptr<Dataset> train;

  Training(const ModelFile& saved, std::int64_t count) {
    network = make_network(saved.info.model);
    network->load_state_dict(saved.weights);
    const ImageSpec& spec = saved.info.images;
    task = std::make_unique<Classifier>(*network, spec.classes);
    train = images(spec, count);
  }
  void run(TrainerConfig config, std::unique_ptr<Callback> callback = nullptr) {
    const ImageSpec& spec = train->spec();
    config.pixel_mean.assign(static_cast<std::size_t>(spec.channels), 0.5);
    config.pixel_stddev.assign(static_cast<std::size_t>(spec.channels), 0.25);
    Trainer trainer(config);
    if (callback) trainer.add(std::move(callback));
    (void)trainer.fit(*task, *train);
  }
};

class Losses final : public Callback {
 public:
  explicit Losses(std::vector<double>& to) : to_(to) {}
  void on_epoch_end(Trainer&, const EpochReport& report) override { to_.push_back(report.train_loss); }

 private:
  std::vector<double>& to_;
};

/// Of epochs of one batch, in which the order of images says nothing.
std::vector<double> first_losses(const ModelFile& saved, const Workload& workload, Precision precision) {
  TrainerConfig config = config_of(saved, workload, precision);
  config.epochs = rate_of(saved.info.images.classes).checked;
  std::vector<double> losses;
  Training(saved, workload.batch).run(config, std::make_unique<Losses>(losses));
  return losses;
}

Ready prepare(const fs::path& file, const Workload& workload, Precision precision) {
  const ModelFile saved = load_model(file);
  TrainerConfig config = config_of(saved, workload, precision);
  config.epochs = 1;
  const auto training = std::make_shared<Training>(saved, workload.steps * workload.batch);
  return {[training, config] { training->run(config); }, first_losses(saved, workload, precision)};
}

std::vector<PeerCase> cases(const fs::path& folder) {
  std::vector<PeerCase> all;
  for (const Workload& workload : workloads()) {
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      const fs::path file = folder / fmt::format("{}.safetensors", workload.network);
      all.push_back({fmt::format("{}/{}/train-b{}", workload.network, name_of(precision), workload.batch), 0,
                     [=] { return prepare(file, workload, precision); }});
    }
  }
  return all;
}

}  // namespace
}  // namespace athanor::peers

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fputs("usage: peer_train DIR\n", stderr);
    return 2;
  }
  return athanor::peers::serve(athanor::peers::cases(argv[1]), athanor::cpu_implementations());
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
