// Contrastive learning on CIFAR-10, without labels: an encoder learns similar features for two views of a
// picture, and different features for different pictures. Two linear probes then classify features: those of
// an encoder with random weights, and the learned ones. build/cpu/bin/contrastive --help
//
// Source: Chen et al. 2020, arXiv:2002.05709 (SimCLR), with a small network.

#include <athanor.h>

using namespace athanor;

/// [N, 32, 32, 3] -> features [N, 256].
struct Encoder : nn::Sequential {
  Encoder() {
    std::int64_t in = 3;
    for (const std::int64_t out : {32, 64, 128, 256}) {
      add<nn::Conv2d>(in, out, 3, nn::Conv2dOptions{.stride = in == 3 ? 1 : 2, .padding = 1, .bias = false});
      // Group norm, not batch norm: random weights have no running statistics.
      add<nn::GroupNorm>(8, out).add<nn::Relu>();
      in = out;
    }
    add<nn::AdaptiveAvgPool2d>().add<nn::Flatten>();
  }
};

struct Contrast : Task {
  Encoder encoder;
  nn::Linear hidden{256, 256, {.activation = Activation::relu}}, out{256, 64};  // the projection head
  Contrast() { network("encoder", encoder), network("hidden", hidden), network("out", out); }
  bool gathers() const override { return true; }

  Tensor loss_of(const Batch& batch, Step& step) {
    const Tensor both = out(hidden(encoder(batch.all_views("image"))));
    const auto view = [&](std::int64_t i) {  // of the samples of all ranks
      return step.all_gather(narrow(both, 0, i * batch.size(), batch.size()));
    };
    return nt_xent_loss(view(0), view(1));
  }
  Tensor training_step(const Batch& batch, Step& step) override { return loss_of(batch, step); }
};

/// A linear classifier on the features of a frozen encoder.
struct Probe : Task {
  Encoder& encoder;
  nn::Linear head{256, 10};
  explicit Probe(Encoder& probed) : encoder(probed) { frozen("encoder", encoder), network("head", head); }
  bool classifies() const override { return true; }

  Tensor training_step(const Batch& batch, Step&) override {
    return cross_entropy(head(encoder(batch["image"])), batch["label"]);
  }
  void validation_step(const Batch& batch, Step& step) override {
    const Tensor logits = head(encoder(batch["image"])), label = batch["label"];
    step.log_classes(cross_entropy(logits, label, 0, Reduction::none), logits, label);
  }
};

int main(int argc, char** argv) {
  TrainerConfig config{.program = "contrastive", .epochs = 15, .batch_size = 256, .lr = 0.4};
  config.augment = {
      .flip = true, .colour = {0.4f, 0.4f, 0.4f, 0.1f}, .resized_crop = RandomResizedCrop{.min_area = 0.2}};
  return train_main(argc, argv, config, dist::networks(), [](Trainer& trainer) {
    const auto folder = trainer.config().data_dir / "cifar10";
    const auto train = cifar10(folder, Split::train), test = cifar10(folder, Split::test);
    const std::uint64_t seed = trainer.config().seed;

    Contrast task;
    task.networks().initialize(seed);
    const auto views = [](TrainerConfig& own) { own.views = 2; };
    trainer.phase("contrast", views).fit(task, *train);

    const auto fit_probe = [&](const char* phase, Encoder& encoder) {
      Probe probe(encoder);
      probe.head.initialize(seed);
      const auto shorter = [](TrainerConfig& own) {
        own.epochs = (own.epochs + 1) / 2;
        own.augment = {};
      };
      return trainer.phase(phase, shorter).fit(probe, *train, *test);
    };
    Encoder random;
    random.initialize(seed);
    fit_probe("random_probe", random);
    return fit_probe("probe", task.encoder);
  });
}
