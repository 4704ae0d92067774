// Trains the digits in f32, f16 and bf16, with the loss multiplied by several factors. Says what each
// training reached, how many of the activations' gradients were 0, how many steps were skipped, and where the
// scale ended. Run it where digits.csv is.
#include <cstdio>
#include <memory>

#include "half.h"

using namespace engine;

namespace {

// Counts zeros among the gradients that pass.
struct Meter final : public Module {
  Variable forward(const Variable& x) override {
    return record(x.value(), {x}, [this](const Tensor& dy) {
      for (const float g : dy.values()) zeros += g == 0, all += 1;
      return std::vector<Tensor>{dy};
    });
  }
  double zeros = 0, all = 0;
};

void train(const char* name, Precision precision, const LossScaler::Options& scaling) {
  const auto layer = [&](std::int64_t in, std::int64_t out, std::uint64_t seed) {
    return std::make_shared<Rounded>(std::make_shared<Linear>(in, out, seed), precision);
  };
  const auto meter = std::make_shared<Meter>();
  Sequential network(
      {std::make_shared<Flatten>(), layer(64, 64, 1), std::make_shared<ReLU>(), meter, layer(64, 10, 2)});
  MasterWeights masters(network, precision);
  SGD sgd(masters.parameters(), {});
  LossScaler scaler(scaling);
  const MixedReport report =
      fit_mixed(network, masters, sgd, scaler, read_digits("digits.csv", true), {.epochs = 20, .lr = 0.1f});
  std::printf("%-22s %8.4f   %6.2f %%   %6.1f %%   %7d   %9.5g\n", name, report.losses.back(),
              100 * accuracy(network, read_digits("digits.csv", false)), 100 * meter->zeros / meter->all,
              static_cast<int>(report.skipped), static_cast<double>(scaler.scale()));
}

// A factor that stays. One below 1 stands for a network whose gradients are smaller than those of the digits.
LossScaler::Options fixed(float factor) {
  return {.initial = factor, .growth = 1, .floor = factor};
}

}  // namespace

int main() {
  std::printf("%-22s %8s   %8s   %8s   %7s   %9s\n", "", "loss", "accuracy", "zeros", "skipped", "scale");
  train("f32", Precision::f32, fixed(1));
  train("f16, loss as it is", Precision::f16, fixed(1));
  train("f16, loss / 2^8", Precision::f16, fixed(0x1p-8f));
  train("f16, loss / 2^16", Precision::f16, fixed(0x1p-16f));
  train("f16, loss / 2^20", Precision::f16, fixed(0x1p-20f));
  train("f16, scaled", Precision::f16, {});
  train("f16, scaled too much", Precision::f16, {.initial = 0x1p24f});
  train("bf16, loss / 2^20", Precision::bf16, fixed(0x1p-20f));
}
