// Trains a ResNet-20 (or --model NAME) on CIFAR-10, which scripts/get_data.sh cifar10 fetches.
// build/cpu/bin/train_cifar10 --epochs 5

#include "common/train.h"
#include "data/formats/cifar.h"

int main(int argc, char** argv) {
  athanor::TrainerConfig config;
  config.program = "train_cifar10";
  config.model = "resnet20";
  config.epochs = 5;
  config.batch_size = 128;
  config.lr = 0.2;
  config.weight_decay = 5e-4;
  config.label_smoothing = 0.1;
  config.augment = {.pad = 2, .padding = athanor::Padding::reflect, .flip = true};
  return athanor::examples::train(argc, argv, config, [](const athanor::TrainerConfig& flags) {
    const auto folder = flags.data_dir / "cifar10";
    return athanor::examples::Data{cifar10(folder, athanor::Split::train),
                                   cifar10(folder, athanor::Split::test)};
  });
}
