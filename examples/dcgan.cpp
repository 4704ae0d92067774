// A deep convolutional GAN on MNIST: one network draws digits from noise, another tells them from real ones.
// Networks, losses and learning rates are those of PyTorch's C++ tutorial. build/cpu/bin/dcgan --help
// Source: Radford et al. 2016, arXiv:1511.06434.

#include <athanor.h>

using namespace athanor;

/// [N, 1, 1, 100] of noise -> [N, 28, 28, 1] in [-1, 1].
struct Generator : nn::Module {
  nn::ConvTranspose2d up1{100, 256, 4, {.bias = false}};
  nn::ConvTranspose2d up2{256, 128, 3, {.stride = 2, .padding = 1, .bias = false}};
  nn::ConvTranspose2d up3{128, 64, 4, {.stride = 2, .padding = 1, .bias = false}};
  nn::ConvTranspose2d up4{64, 1, 4, {.stride = 2, .padding = 1, .bias = false}};
  nn::BatchNorm norm1{256, {.activation = Activation::relu}};
  nn::BatchNorm norm2{128, {.activation = Activation::relu}};
  nn::BatchNorm norm3{64, {.activation = Activation::relu}};
  Generator() {
    register_module("up1", up1), register_module("norm1", norm1);
    register_module("up2", up2), register_module("norm2", norm2);
    register_module("up3", up3), register_module("norm3", norm3);
    register_module("up4", up4);
  }
  Tensor forward(const Tensor& noise) override {
    return tanh(up4(norm3(up3(norm2(up2(norm1(up1(noise))))))));
  }
};

/// [N, 28, 28, 1] -> [N] logits of being real.
struct Discriminator : nn::Module {
  nn::Conv2d down1{1, 64, 4, {.stride = 2, .padding = 1, .bias = false}};
  nn::Conv2d down2{64, 128, 4, {.stride = 2, .padding = 1, .bias = false}};
  nn::Conv2d down3{128, 256, 4, {.stride = 2, .padding = 1, .bias = false}};
  nn::Conv2d down4{256, 1, 3, {.bias = false}};
  nn::BatchNorm norm2{128}, norm3{256};
  Discriminator() {
    register_module("down1", down1);
    register_module("down2", down2), register_module("norm2", norm2);
    register_module("down3", down3), register_module("norm3", norm3);
    register_module("down4", down4);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor wide = leaky_relu(norm2(down2(leaky_relu(down1(x), 0.2))), 0.2);
    return flatten(down4(leaky_relu(norm3(down3(wide)), 0.2)), 0);
  }
};

struct Dcgan : Task {
  Generator generator;
  Discriminator discriminator;
  Dcgan() { network("generator", generator), network("discriminator", discriminator); }

  std::vector<OptimizerSpec> optimizers() const override {
    return {optimizer<Adam>("discriminator", {"discriminator"}, {.beta1 = 0.5}, schedules::constant(2e-4)),
            optimizer<Adam>("generator", {"generator"}, {.beta1 = 0.5}, schedules::constant(2e-4))};
  }
  Tensor draw(const Batch& batch, Step& step) { return generator(step.randn({batch.size(), 1, 1, 100})); }

  Tensor training_step(const Batch& batch, Step& step) override {
    const Tensor fake = draw(batch, step);
    step.minimize("discriminator", bce_with_logits(discriminator(batch["image"]), 1) +
                                       bce_with_logits(discriminator(fake.detach()), 0));
    step.minimize("generator", bce_with_logits(discriminator(fake), 1));
    return {};
  }
  void validation_step(const Batch& batch, Step& step) override {
    const Tensor fake = draw(batch, step);
    step.log("d_of_real", mean(sigmoid(discriminator(batch["image"]))));  // 1: all classified as real
    step.log("d_of_fake", mean(sigmoid(discriminator(fake))));
    step.images("samples", fake, {.low = -1});
  }
};

int main(int argc, char** argv) {
  TrainerConfig config{.program = "dcgan", .epochs = 10, .batch_size = 64};
  config.pixel_mean = config.pixel_stddev = {0.5};  // pixels in [-1, 1], the range of tanh
  return train_main(argc, argv, config, dist::networks(), [](Trainer& trainer) {
    const auto folder = trainer.config().data_dir / "mnist";
    Dcgan task;
    task.networks().initialize(trainer.config().seed);
    return trainer.fit(task, *mnist(folder, Split::train), *mnist(folder, Split::test));
  });
}
