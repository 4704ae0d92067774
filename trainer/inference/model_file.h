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

/// A model file's description of its weights: everything needed to use them.
struct ModelInfo {
  std::string version = {};                   ///< of the library that wrote it; save_model() fills it in
  std::string program = {};                   ///< the training program: "train_mnist"
  std::string model = {};                     ///< a name for nn::make_model(); empty: a custom network
  bool classifies = true;                     ///< its results are logits, one per class
  ImageSpec images = {};                      ///< its input
  std::vector<std::string> class_names = {};  ///< one per class; empty if the data set has none
  Normalization pixels = {};                  ///< for bytes / 255
  /// Images of another size are scaled until the shorter side has this many pixels, then centre-cropped; 0:
  /// scaled to cover height x width.
  std::int64_t shorter_side = 0;
  Precision precision = Precision::f32;
  std::int64_t batch_size = 0;    ///< of the validation that gave the figures below, and
  int ranks = 1;                  ///< the number of ranks that shared each of its batches
  std::string conv_choices = {};  ///< of its convolutions, see kernels/conv_choices.h; empty: rules
  std::string weights = {};       ///< which weights: "best val_loss", "running average", "last step"
  double test_loss = 0, test_accuracy = 0;  ///< NaN if not measured
  std::uint64_t weights_hash = 0;
};

/// A model saved by a run: weights under their modules' names, f32, and their description.
struct ModelFile {
  std::filesystem::path path;  ///< for messages
  ModelInfo info;
  StateDict weights;
};

/// The input of save_state_file(): the weights, and `info` for the file's metadata.
StateDict model_state(const ModelInfo& info, const StateDict& weights);
/// Whether a safetensors file with this metadata is a model file.
bool is_model(const safetensors::Metadata& metadata);
/// Reads and fully checks a model file. Throws IoError naming the file and the problem.
ModelFile load_model(const std::filesystem::path& path);

}  // namespace athanor
