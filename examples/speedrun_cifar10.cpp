// CIFAR-10 to 94 % in eight epochs: a small network, a whitening convolution computed from the images, Muon
// for the filters, alternating flips, and six views of each test image. The recipe of the speed records, on
// CPU and GPU. On a GPU the images stay in its memory, and each step is a CUDA graph.
//
//     build/cpu/bin/speedrun_cifar10 --precision bf16 --seed 1
//
// Source: Jordan 2024, arXiv:2404.00498, and its later variant with Muon (airbench94_muon).

#include <athanor.h>

#include "nn/models/cifarnet.h"

using namespace athanor;

/// The source's settings. Its losses are sums over a batch, ours means: SGD rates are times the batch size.
struct Recipe {
  double filters = 0.24, biases = 0.053, head = 0.67;  // learning rates
  double decay = 2e-6;                                 // of a weight per step, per sample of the batch
  std::int64_t whitening_epochs = 3;                   // in which the whitening's bias is trained
};
constexpr Recipe kRecipe;
constexpr std::int64_t kSide = 32;  // pixels

/// The program's own flags.
struct Choices {
  std::int64_t width = 64;
  std::string muon = "auto";
};

struct Speedrun : Task {
  nn::CifarNet net;
  const TrainerConfig& config;
  const Choices& choices;
  std::int64_t epoch_steps;
  TestTimeAugmentation six_views;
  Speedrun(const TrainerConfig& of_run, std::int64_t images, const Choices& own)
      : net({.classes = 10, .in_channels = 3, .image_size = kSide}, own.width),
        config(of_run),
        choices(own),
        epoch_steps(std::max<std::int64_t>(images / config.batch_size, 1)),
        six_views(TestViews::six, kSide, kSide, config.device) {
    network("", net);
  }
  bool classifies() const override { return true; }
  bool mixes_labels() const override { return true; }
  /// On a GPU, steps are captured as CUDA graphs: those that train the whitening's bias, and the others; and
  /// validation by one view, and by six.
  std::optional<std::int64_t> captured_as(const BatchPosition& place) const override {
    return place.training ? place.epoch >= kRecipe.whitening_epochs : place.epoch + 1 >= config.epochs;
  }

  Tensor training_step(const Batch& batch, Step& step) override {
    if (step.epoch() >= kRecipe.whitening_epochs) freeze_whitening();
    const Tensor logits = net(batch["image"]);
    return mixed_loss(
        batch, [&](const Tensor& label) { return cross_entropy(logits, label, config.label_smoothing); });
  }
  void validation_step(const Batch& batch, Step& step) override {
    const Tensor x = batch["image"], label = batch["label"];
    const Tensor logits = step.epoch() + 1 < config.epochs ? net(x) : six_views(net, x);
    step.log_classes(cross_entropy(logits, label, 0, Reduction::none), logits, label);
  }

  /// Without a gradient there is no update, nor the convolution's backward pass.
  void freeze_whitening() {
    for (const Parameter& one : net.parameters()) {
      if (one.name == "whiten.bias" && one.tensor.requires_grad()) forget_grad(one.tensor);
    }
  }

  /// Muon for filters, and SGD for the rest in three groups.
  std::vector<OptimizerSpec> optimizers() const override {
    return {
        {.name = "",
         .networks = {},
         .make = [this](ParameterArena& arena, int first_slot) { return make_optimizer(arena, first_slot); },
         .schedule = {},
         .whole_parameters = Muon::kWholeParameters}};
  }
  std::unique_ptr<Optimizer> make_optimizer(ParameterArena& arena, int first_slot) const {
    const Selector matrices = selectors::matrices(), head = selectors::under("head");
    const Selector filters = [=](const Parameter& one) { return matrices(one) && !head(one); };
    const std::vector<Sgd::Group> rest{
        sgd_group(selectors::named({"whiten.bias"}), kRecipe.biases,
                  schedules::linear(config.lr, kRecipe.whitening_epochs * epoch_steps)),
        sgd_group(head, kRecipe.head), sgd_group(selectors::none_of(filters), kRecipe.biases)};
    const bool in_f32 = choices.muon == "f32" || (choices.muon == "auto" && config.device.is_cpu());
    Muon::Group muon;
    muon.parameters = filters;
    muon.options = {.momentum = 0.6f,
                    .scale = MuonScale::none,
                    .iterations = 3,
                    .normalize_weights = true,
                    .dtype = in_f32 ? DType::f32 : DType::bf16};
    return std::make_unique<Muon>(arena, std::vector<Muon::Group>{muon}, first_slot,
                                  std::make_unique<Sgd>(arena, rest, first_slot + 1));
  }
  Sgd::Group sgd_group(const Selector& parameters, double rate, const Schedule& schedule = {}) const {
    Sgd::Group group;
    group.parameters = parameters;
    group.lr_scale = static_cast<float>(rate * static_cast<double>(config.batch_size) / kRecipe.filters);
    group.schedule = schedule;
    group.options = {.momentum = 0.85f,
                     .weight_decay = static_cast<float>(kRecipe.decay / rate),
                     .nesterov = true,
                     .decay = Decay::all};
    return group;
  }
};

/// The first images of a data set, normalised: [count, H, W, C].
Tensor first_images(const Dataset& data, std::int64_t count) {
  const ImageSpec& spec = data.spec();
  Batch batch;
  batch.images = Tensor::empty({count, spec.height, spec.width, spec.channels}, {DType::u8});
  batch.samples = Tensor::zeros({count}, {DType::i64});
  for (std::int64_t i = 0; i < count; ++i)
    data.read(i, {batch.images.data<std::uint8_t>() + i * spec.bytes(), std::size_t(spec.bytes())});
  return Preprocess(spec, measure(data), DType::f32, kCpu)(batch, 0, false);
}

int main(int argc, char** argv) {
  TrainerConfig config{.program = "speedrun_cifar10", .model = "cifarnet", .epochs = 8, .batch_size = 2000};
  config.lr = kRecipe.filters;
  config.val_batch_size = 1000;
  config.label_smoothing = 0.2;
  config.augment = {.pad = 2, .padding = Padding::reflect, .flip = true, .alternate_flip = true};
  config.data_on_device = true;
  config.schedule = [](double lr, std::int64_t steps) { return schedules::linear(lr, steps); };
  Choices own;
  const auto fit = [&own](Trainer& trainer) {
    const auto folder = trainer.config().data_dir / "cifar10";
    const auto train = cifar10(folder, Split::train), test = cifar10(folder, Split::test);
    Speedrun task(trainer.config(), train->size(), own);
    task.net.initialize(trainer.config().seed);
    task.net.whiten(first_images(*train, std::min<std::int64_t>(5'000, train->size())));
    return trainer.fit(task, *train, *test);
  };
  return train_main(argc, argv, config, dist::networks(), fit, [&own](Flags& flags) {
    flags.add("--width N", own.width, "channels of the first group; the others have four times as many [{}]");
    flags.add("--muon DTYPE", own.muon, "auto, f32 or bf16: Muon's products; auto: bf16 on a GPU [{}]",
              {"auto", "f32", "bf16"});
  });
}
