#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/preprocess.h"
#include "optim/precision.h"
#include "tensor/safetensors.h"
#include "tensor/state_dict.h"
#include "trainer/checkpoints/state_file.h"

namespace athanor {

/// What a model's file says of its weights: all that it takes to use them.
struct ModelInfo {
  std::string version = {};  ///< of the library that wrote it; save_model() fills it in
  std::string program = {};  ///< that trained it: "train_mnist"
  std::string model = {};    ///< a name nn::make_model() knows; empty: the program's own network
  bool classifies = true;    ///< its results are logits, one per class
  ImageSpec images = {};     ///< that it takes
  std::vector<std::string> class_names = {};  ///< one per class, or none where the data set has none
  Normalization pixels = {};                  ///< what bytes / 255 are normalised by
  /// An image of another size is scaled until its shorter side has so many pixels, and the middle cut out; 0:
  /// until it covers height x width.
  std::int64_t shorter_side = 0;
  Precision precision = Precision::f32;
  std::int64_t batch_size = 0;  ///< of the validation that measured the figures below, and how many
  int ranks = 1;                ///< ranks shared each batch of it
  std::string weights = {};     ///< which they are: "best val_loss", "running average", "last step"
  double test_loss = 0, test_accuracy = 0;  ///< NaN where they were not measured
  std::uint64_t weights_hash = 0;
};

/// A model as a run leaves it: weights under their modules' names, f32, and what they are.
struct ModelFile {
  std::filesystem::path path;  ///< for messages
  ModelInfo info;
  StateDict weights;
};

/// What save_state_file() is to be given: the weights, and `info` in the file's metadata.
StateDict model_state(const ModelInfo& info, const StateDict& weights);
/// Whether a safetensors file with this metadata says that it is one.
bool is_model(const safetensors::Metadata& metadata);
/// Reads one and checks all of it. Throws IoError naming the file and what is wrong with it.
ModelFile load_model(const std::filesystem::path& path);

}  // namespace athanor
