#pragma once

#include <filesystem>
#include <optional>

#include "nn/pretrained.h"
#include "tensor/state_dict.h"
#include "trainer/inference/model_file.h"

namespace athanor {

/// Weights as stored by any library: with its names and layouts.
struct WeightsFile {
  StateDict weights;
  /// The file's description of its network: complete in a run's model; in a checkpoint its name, the images
  /// and their normalisation, to six digits. Empty for other files.
  std::optional<ModelInfo> info = {};
};

/// Reads the weights of a run's model or checkpoint, which are verified, of any other safetensors file, or of
/// a torch.save() file (nn/torch/torch_file.h). The first bytes give the format. Throws IoError naming the
/// file and the problem.
WeightsFile read_weights(const std::filesystem::path& path);

/// Reads a file's weights into an initialised model: nn::load_pretrained() defines what fits, and handles the
/// last layer. Throws IoError, and ArgumentError naming the file.
nn::Pretrained load_weights(const std::filesystem::path& path, nn::Module& model,
                            const nn::PretrainedOptions& options = {});

}  // namespace athanor
