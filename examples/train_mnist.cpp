// Trains LeNet-5 (or --model NAME) on MNIST, which scripts/get_data.sh mnist fetches.
// build/cpu/bin/train_mnist --epochs 3

#include "common/train.h"
#include "data/formats/mnist.h"

int main(int argc, char** argv) {
  athanor::TrainerConfig config;
  config.program = "train_mnist";
  config.model = "lenet5";
  config.epochs = 5;
  config.batch_size = 64;
  config.lr = 0.05;
  return athanor::examples::train(argc, argv, config, [](const athanor::TrainerConfig& flags) {
    const auto folder = flags.data_dir / "mnist";
    return athanor::examples::Data{mnist(folder, athanor::Split::train), mnist(folder, athanor::Split::test)};
  });
}
