// train FOLDER [cnn|transformer] [STEPS]
//   Trains on digits.csv. Kill it, start it again with the same words: it goes on, and ends with the same
//   hash.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "train.h"
#include "transformer.h"

int main(int argc, char** argv) {
  using namespace engine;
  const std::string kind = argc > 2 ? argv[2] : "cnn";
  if (argc < 2 || argc > 4 || (kind != "cnn" && kind != "transformer")) {
    std::cerr << "usage: train FOLDER [cnn|transformer] [STEPS]\n";
    return 2;
  }
  try {
    const Dataset train_data = read_digits("digits.csv", true), test_data = read_digits("digits.csv", false);
    const std::shared_ptr<Module> network =
        kind == "cnn" ? digits_cnn(1) : std::make_shared<DigitsTransformer>(DigitsTransformer::Options{}, 1);
    AdamW optimizer(network->parameters(), {});
    TrainingRun run{*network, optimizer, {}, {}};
    TrainOptions options{.steps = 880, .warmup = 40, .lr = 0.004f, .folder = argv[1]};
    if (argc > 3) options.steps = std::atoll(argv[3]);
    train(run, train_data, options, std::cout);
    std::printf("%lld steps: %.2f %% of the test images, hash %016llx\n",
                static_cast<long long>(run.progress.step), 100 * accuracy(*network, test_data),
                static_cast<unsigned long long>(hash_of(*network)));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
