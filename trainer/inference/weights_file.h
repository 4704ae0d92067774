#pragma once

#include <filesystem>
#include <optional>

#include "nn/pretrained.h"
#include "tensor/state_dict.h"
#include "trainer/inference/model_file.h"

namespace athanor {

/// Weights as a file holds them, whoever wrote it: under that library's names, in its layouts.
struct WeightsFile {
  StateDict weights;
  /// What the file says of its network: all of it in a run's model; in a checkpoint its name, the images and
  /// their normalisation, to six digits. Nothing in other files.
  std::optional<ModelInfo> info = {};
};

/// Reads the weights of a run's model or of one of its checkpoints, which are checked, of any other
/// safetensors file, or of a file of torch.save() (tensor/torch_file.h). The first bytes tell. Throws IoError
/// naming the file and what is wrong with it.
WeightsFile read_weights(const std::filesystem::path& path);

/// Reads a file's weights into a model that has values: nn::load_pretrained() says what fits, and what
/// becomes of the last layer. Throws IoError, and ArgumentError naming the file.
nn::Pretrained load_weights(const std::filesystem::path& path, nn::Module& model,
                            const nn::PretrainedOptions& options = {});

}  // namespace athanor
