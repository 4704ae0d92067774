#include "trainer/inference/weights_file.h"

#include <cstdio>
#include <limits>
#include <sstream>
#include <vector>

#include "nn/torch/torch_file.h"
#include "tensor/error.h"
#include "tensor/safetensors.h"
#include "trainer/checkpoints/checkpoint.h"

namespace athanor {
namespace {

/// Parses "mean 0.5 0.4, deviation 0.2 0.3"; empty if it is invalid.
Normalization pixels_from(const std::string& text) {
  std::istringstream words(text);
  Normalization pixels;
  std::vector<double>* values = nullptr;
  for (std::string word; words >> word;) {
    double value = 0;
    if (word == "mean") values = &pixels.mean;
    if (word == "deviation") values = &pixels.stddev;
    if (values && std::sscanf(word.c_str(), "%lf", &value) == 1) values->push_back(value);
  }
  return pixels;
}

/// A checkpoint's settings about its network; numbers are stored there as text for users.
ModelInfo info_of_checkpoint(const StateDict& settings) {
  ModelInfo info;
  info.program = "a checkpoint";
  info.model = settings.text("model");
  info.weights = "checkpoint";
  info.test_loss = info.test_accuracy = std::numeric_limits<double>::quiet_NaN();
  ImageSpec& images = info.images;
  long long height = 0, width = 0, channels = 0, classes = 0;
  const std::string size = settings.text("images");
  if (std::sscanf(size.c_str(), "%lldx%lldx%lld, %lld classes", &height, &width, &channels, &classes) == 4)
    images = {height, width, channels, classes};
  info.pixels = pixels_from(settings.text("pixels"));
  return info;
}

}  // namespace

WeightsFile read_weights(const std::filesystem::path& path) {
  if (torch_file::is_torch_file(path)) return {torch_file::load(path)};
  safetensors::Metadata metadata;
  const StateDict all = safetensors::load(path, &metadata);
  if (is_model(metadata)) {
    ModelFile file = load_model(path);
    return {std::move(file.weights), std::move(file.info)};
  }
  const auto format = metadata.find("format");
  if (format == metadata.end() || format->second != format_of(StateFile::checkpoint)) return {all};
  const StateDict checkpoint = load_checkpoint(path);
  return {checkpoint.under("model."), info_of_checkpoint(checkpoint.under("settings."))};
}

nn::Pretrained load_weights(const std::filesystem::path& path, nn::Module& model,
                            const nn::PretrainedOptions& options) {
  const WeightsFile file = read_weights(path);
  try {
    return nn::load_pretrained(model, file.weights, options);
  } catch (const ArgumentError& error) {
    detail::fail<>("{}: {}", path.string(), error.what());
  }
}

}  // namespace athanor
