// CIFAR-10 to 94 % in eight epochs: a small network, a whitening convolution computed from the images, Muon
// for the filters, alternating flips, and six views of each test image. The recipe of the speed records, on
// CPU and GPU. build/cpu/bin/speedrun_cifar10 --precision bf16 --seed 1 Source: Jordan 2024,
// arXiv:2404.00498, and its later variant with Muon (airbench94_muon).

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

struct Speedrun : Task {
  nn::CifarNet net{{.classes = 10, .in_channels = 3, .image_size = 32}};
  const TrainerConfig& config;
  std::int64_t epoch_steps;
  Speedrun(const TrainerConfig& of_run, std::int64_t images)
      : config(of_run), epoch_steps((images + config.batch_size - 1) / config.batch_size) {
    network("", net);
  }
  bool classifies() const override { return true; }
  bool mixes_labels() const override { return true; }
  /// On a GPU, steps are captured as CUDA graphs. Six views are made in the last epoch alone.
  std::optional<std::int64_t> captured_as(const BatchPosition& place) const override {
    if (place.training || place.epoch + 1 < config.epochs) return 0;
    return std::nullopt;
  }

  Tensor training_step(const Batch& batch, Step&) override {
    const Tensor logits = net(batch["image"]);
    return mixed_loss(
        batch, [&](const Tensor& label) { return cross_entropy(logits, label, config.label_smoothing); });
  }
  void validation_step(const Batch& batch, Step& step) override {
    const Tensor x = batch["image"], label = batch["label"];
    const Tensor logits = step.epoch() + 1 < config.epochs ? net(x) : six_views(x);
    step.log_classes(cross_entropy(logits, label, 0, Reduction::none), logits, label);
  }

  /// Logits of an image, of its shifts by a pixel up left and down right, and of each mirrored.
  Tensor six_views(const Tensor& x) {
    const auto both_ways = [&](std::int64_t shift) {
      return affine(net(view(x, shift, false)) + net(view(x, shift, true)), 0.5);
    };
    return affine(both_ways(0), 0.5) + affine(both_ways(-1) + both_ways(1), 0.25);
  }
  /// x [N, H, W, C], shifted along both sides by up to a pixel, and mirrored left to right. Pixels from
  /// outside are reflections at the edge.
  static Tensor view(const Tensor& x, std::int64_t shift, bool mirror) {
    const auto along = [&](int axis, bool backward) {
      const std::int64_t side = x.dim(axis);
      std::vector<std::int64_t> from;
      for (std::int64_t i = 0; i < side; ++i) {
        const std::int64_t at = kernels::padded_index(i + shift, side, Padding::reflect);
        from.push_back(backward ? side - 1 - at : at);
      }
      return Tensor::from(from, {side}).to(x.device());
    };
    return index_select(index_select(x, 1, along(1, false)), 2, along(2, mirror));
  }

  /// Muon for filters, and SGD for the rest in three groups.
  std::vector<OptimizerSpec> optimizers() const override {
    return {{.name = "", .networks = {}, .make = [this](ParameterArena& arena, int first_slot) {
               return make_optimizer(arena, first_slot);
             }}};
  }
  std::unique_ptr<Optimizer> make_optimizer(ParameterArena& arena, int first_slot) const {
    const Selector matrices = selectors::matrices(), head = selectors::under("head");
    const Selector filters = [=](const Parameter& one) { return matrices(one) && !head(one); };
    const std::vector<Sgd::Group> rest{
        sgd_group(selectors::named({"whiten.bias"}), kRecipe.biases,
                  schedules::linear(config.lr, kRecipe.whitening_epochs * epoch_steps)),
        sgd_group(head, kRecipe.head), sgd_group(selectors::none_of(filters), kRecipe.biases)};
    Muon::Group muon;
    muon.parameters = filters;
    muon.options = {.momentum = 0.6f,
                    .scale = MuonScale::none,
                    .iterations = 3,
                    .normalize_weights = true,
                    .dtype = config.device.is_cpu() ? DType::f32 : DType::bf16};
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
  config.schedule = [](double lr, std::int64_t steps) { return schedules::linear(lr, steps); };
  return train_main(argc, argv, config, dist::networks(), [](Trainer& trainer) {
    const auto folder = trainer.config().data_dir / "cifar10";
    const auto train = cifar10(folder, Split::train), test = cifar10(folder, Split::test);
    Speedrun task(trainer.config(), train->size());
    task.net.initialize(trainer.config().seed);
    task.net.whiten(first_images(*train, std::min<std::int64_t>(5'000, train->size())));
    return trainer.fit(task, *train, *test);
  });
}
