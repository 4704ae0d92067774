#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nn/pretrained.h"
#include "nn/torch/weight_parts.h"
#include "tensor/state_dict.h"
#include "trainer/inference/model_file.h"

namespace athanor {

/// Weights as stored by any library: with its names and layouts.
struct WeightsFile {
  StateDict weights;
  /// The file's description of its network: of a run's model or checkpoint, and of weights that athanor
  /// convert wrote. Empty for other files.
  std::optional<ModelInfo> info = {};
  WeightParts parts = {};  ///< of torch_file::load(): where the weights are
};

/// Reads the weights of a run's model or checkpoint, which are verified, of any other safetensors file, or of
/// a torch.save() file (nn/torch/torch_file.h, which says what `averages` does). The first bytes give the
/// format. Throws IoError naming the file and the problem, which may be a weight's value (check_values()).
WeightsFile read_weights(const std::filesystem::path& path, bool averages = true);

/// nn::load_pretrained() of a file's weights. `parts` of the result are those of the file and of what it
/// holds.
nn::Pretrained load_pretrained(nn::Module& model, const WeightsFile& file,
                               const nn::PretrainedOptions& options = {});

/// "" if a file holds one network's weights; else which of them were taken: "under 'model_ema', a running
/// average, not 'model'".
std::string choice_of(const nn::Pretrained& taken);

/// Reads a file's weights into an initialised model: nn::load_pretrained() defines what fits, and handles the
/// last layer. If the file names its classes, and `class_names` are the same in another order, the rows of
/// the last layer follow them; if they are others, that layer keeps its values. Throws IoError, and
/// ArgumentError naming the file, also if it is quantized.
nn::Pretrained load_weights(const std::filesystem::path& path, nn::Module& model,
                            const nn::PretrainedOptions& options = {},
                            const std::vector<std::string>& class_names = {});

}  // namespace athanor
