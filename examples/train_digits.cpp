// Trains a small CNN on the 8x8 handwritten digits embedded in the library: needs no data, takes seconds.
// build/cpu/bin/train_digits --help

#include "common/train.h"
#include "data/digits.h"

int main(int argc, char** argv) {
  athanor::TrainerConfig config;
  config.program = "train_digits";
  config.model = "digits_cnn";
  config.epochs = 20;
  config.batch_size = 32;
  config.lr = 0.1;
  config.threads = 1;  // steps this small end before a second thread is awake
  config.augment = {.pad = 1};
  return athanor::examples::train(argc, argv, config, [](const athanor::TrainerConfig&) {
    return athanor::examples::Data{digits(athanor::Split::train), digits(athanor::Split::test)};
  });
}
