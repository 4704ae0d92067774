// Denoising on MNIST: each step adds noise to clean digits, and a network learns to predict that noise.
// Subtracting it denoises. Three epochs raise the PSNR from 12.0 to 24.7 dB. The samples/ of a run folder
// compare noisy, denoised and clean digits. build/cpu/bin/denoise --run-dir runs/denoise
// Source: Zhang et al. 2017, arXiv:1608.03981 (DnCNN), with fewer and narrower layers.

#include <athanor.h>

using namespace athanor;

/// [N, H, W, 1] -> the noise in it, of the same shape.
struct DnCnn : nn::Module {
  static constexpr std::int64_t kWidth = 24;
  nn::Conv2d first{1, kWidth, 3, {.padding = 1, .activation = Activation::relu}};
  nn::Conv2d second{kWidth, kWidth, 3, {.padding = 1, .bias = false}};
  nn::Conv2d third{kWidth, kWidth, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm norm2{kWidth, {.activation = Activation::relu}};
  nn::BatchNorm norm3{kWidth, {.activation = Activation::relu}};
  nn::Conv2d last{kWidth, 1, 3, {.padding = 1}};
  DnCnn() {
    register_module("first", first);
    register_module("second", second), register_module("norm2", norm2);
    register_module("third", third), register_module("norm3", norm3);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) override { return last(norm3(third(norm2(second(first(x)))))); }
};

/// PSNR per picture with pixels in [-1, 1]: 10 log10(2^2 / mean squared error), [N] f32, in dB.
Tensor psnr(const Tensor& image, const Tensor& clean) {
  const Tensor error = mean(square(cast(image - clean, DType::f32)), {1, 2, 3});
  return affine(log(error), -10 / std::log(10.0), 10 * std::log10(4.0));
}

struct Denoise : Task {
  DnCnn net;
  double deviation;
  explicit Denoise(double noise) : deviation(noise) { network("net", net); }

  std::vector<OptimizerSpec> optimizers() const override {
    return {optimizer<Adam>("adam", {"net"}, {}, {})};  // with the Trainer's learning rates
  }

  Tensor noise_for(const Tensor& clean, Step& step) { return affine(step.randn(clean.shape()), deviation); }

  Tensor training_step(const Batch& batch, Step& step) override {
    const Tensor clean = batch["image"], noise = noise_for(clean, step);
    return mse_loss(net(clean + noise), noise);
  }
  void validation_step(const Batch& batch, Step& step) override {
    const Tensor clean = batch["image"], noisy = clean + noise_for(clean, step),
                 denoised = noisy - net(noisy);
    step.log("psnr_of_noisy", psnr(noisy, clean));
    step.log("psnr", psnr(denoised, clean));
    step.images("samples", cat({noisy, denoised, clean}, 2), {.low = -1, .columns = 4, .at_most = 32});
  }
};

int main(int argc, char** argv) {
  TrainerConfig config{.program = "denoise", .epochs = 3, .batch_size = 64, .lr = 2e-3};
  config.pixel_mean = config.pixel_stddev = {0.5};  // pixels in [-1, 1]
  double noise = 0.5;
  const auto fit = [&](Trainer& trainer) {
    ATH_CHECK(noise >= 0, "denoise: --noise must be at least 0, but got {}", noise);
    const auto folder = trainer.config().data_dir / "mnist";
    Denoise task(noise);
    task.networks().initialize(trainer.config().seed);
    return trainer.fit(task, *mnist(folder, Split::train), *mnist(folder, Split::test));
  };
  return train_main(argc, argv, config, dist::networks(), fit, [&](Flags& flags) {
    flags.add("--noise S", noise, "standard deviation of the noise; black is -1, white 1 [{}]");
  });
}
