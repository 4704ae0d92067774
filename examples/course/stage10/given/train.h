#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint.h"
#include "optim.h"

namespace engine {

/// How far a run has come.
struct Progress {
  std::uint64_t seed = 1;     ///< of the order of samples
  std::int64_t step = 0;      ///< updates made: what the learning rate depends on
  std::int64_t epoch = 0;     ///< which order of samples
  std::int64_t position = 0;  ///< samples of this epoch that have been used
};

/// All that a training changes.
struct TrainingRun {
  Module& network;
  Optimizer& optimizer;
  /// Live tensors of anything else that must be saved, such as a loss scaler's state(), with their names.
  std::vector<std::pair<std::string, Tensor>> others = {};
  Progress progress = {};
};

/// The whole state: tensors "model." + the name of a parameter or buffer, "optimizer." + that of an
/// optimizer's state, and "others." + that of one of run.others; integers "seed" (its 64 bits), "step",
/// "epoch", "position". The tensors are the live ones, not copies.
State state_of(const TrainingRun& run);

/// Sets the run to a state: every number of it. Throws std::invalid_argument that names an entry which is
/// missing, unknown or of another shape, or says that the seed is another; then the run is as it was.
void restore(TrainingRun& run, const State& state);

struct TrainOptions {
  std::int64_t steps = 440;  ///< of the whole run
  std::int64_t batch_size = 32, warmup = 0;
  float lr = 0.05f;
  std::string folder = {};       ///< of the checkpoints; empty: none are written
  std::int64_t save_every = 20;  ///< steps; the last step is saved as well
};

/// Switches the network to training, and trains until options.steps updates are made. If the folder has a
/// checkpoint, goes on from the newest that is whole, with one line in `notes`: "resumed at step 40 of 440".
/// A step takes the next batch_size samples of epoch_order(size, seed, epoch); an epoch ends when fewer are
/// left, which it leaves out. The rate of a step is cosine_rate(lr, step, warmup, steps). A run that is
/// killed and started again with the same options, any number of times, ends with the bits of one that is
/// not. A checkpoint of options.steps or of a later step leaves nothing to do. Throws std::invalid_argument
/// if the data is smaller than a batch.
void train(TrainingRun& run, const Dataset& data, const TrainOptions& options, std::ostream& notes);

/// The hash of all parameters, then all buffers, every bit of each, in the network's order: equal for equal
/// networks.
std::uint64_t hash_of(const Module& network);

/// 3 x 3 convolutions with padding 1, each with batch norm, ReLU and a pooling of 2 x 2: 1 to 8 channels, 8
/// to 16, then flatten and Linear(64, 10). A Sequential of ten layers, from Conv2d, "0", to Linear, "9".
/// Layers have different seeds, made from `seed`.
std::shared_ptr<Module> digits_cnn(std::uint64_t seed);

}  // namespace engine
