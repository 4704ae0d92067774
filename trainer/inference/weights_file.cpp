#include "trainer/inference/weights_file.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <sstream>
#include <vector>

#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "nn/torch/torch_file.h"
#include "tensor/error.h"
#include "tensor/regular_file.h"
#include "tensor/safetensors.h"
#include "trainer/checkpoints/state_file.h"

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

/// Brings the rows of the last layer from the order of classes `from` to that of `to`.
void move_rows_of_head(StateDict& weights, const nn::Module& model, const std::vector<std::string>& from,
                       const std::vector<std::string>& to) {
  const std::string last = model.parameters().back().name, head = last.substr(0, last.rfind('.') + 1);
  std::vector<std::int64_t> rows;
  for (const std::string& name : to) rows.push_back(std::find(from.begin(), from.end(), name) - from.begin());
  StateDict moved;
  for (const StateDict::Entry& entry : weights) {
    const Tensor* const tensor = std::get_if<Tensor>(&entry.value);
    const bool of_head =
        tensor && entry.name.starts_with(head) && tensor->rank() > 0 && tensor->dim(0) == std::ssize(rows);
    if (of_head) {
      const NoGrad no_grad;
      std::vector<Tensor> parts;
      for (const std::int64_t row : rows) parts.push_back(narrow(*tensor, 0, row, 1));
      moved.set(entry.name, cat(parts, 0));
    } else {
      moved.set(entry.name, entry.value);
    }
  }
  weights = std::move(moved);
}

WeightsFile read(const std::filesystem::path& path) {
  WeightsFile file;
  if (torch_file::is_torch_file(path)) {
    file.weights = torch_file::load(path, &file.parts);
    return file;
  }
  safetensors::Metadata metadata;
  try {
    file.weights = safetensors::load(path, &metadata);
  } catch (const IoError&) {
    const std::string is = RegularFile(path).kind();
    if (is.empty()) throw;
    detail::fail<IoError>("weights: {} must be safetensors or a .pth file of PyTorch, but is {}",
                          path.string(), is);
  }
  const auto format = metadata.find("format");
  if (is_model(metadata)) {
    ModelFile model = load_model(path);
    file.weights = std::move(model.weights);
    file.info = std::move(model.info);
  } else if (format != metadata.end() && format->second == format_of(StateFile::checkpoint)) {
    const StateDict checkpoint = load_state_file(path, StateFile::checkpoint, Verify::all, &metadata);
    file.weights = checkpoint.under("model.");
    file.info = described(metadata);
    if (!file.info) file.info = info_of_checkpoint(checkpoint.under("settings."));
  } else {
    file.info = described(metadata);
  }
  return file;
}

}  // namespace

WeightsFile read_weights(const std::filesystem::path& path) {
  try {
    WeightsFile file = read(path);
    check_values(file.weights);
    return file;
  } catch (const ArgumentError& error) {
    detail::fail<IoError>("weights: {} cannot be used: {}", path.string(), error.what());
  }
}

nn::Pretrained load_weights(const std::filesystem::path& path, nn::Module& model,
                            const nn::PretrainedOptions& options,
                            const std::vector<std::string>& class_names) {
  WeightsFile file = read_weights(path);
  nn::PretrainedOptions how = options;
  const auto theirs = file.info ? file.info->class_names : std::vector<std::string>();
  const bool differ = !theirs.empty() && !class_names.empty() && theirs != class_names;
  const bool others =
      differ && !std::is_permutation(theirs.begin(), theirs.end(), class_names.begin(), class_names.end());
  if (differ && !others) move_rows_of_head(file.weights, model, theirs, class_names);
  how.reset_head |= others;
  try {
    nn::Pretrained taken = nn::load_pretrained(model, file.weights, how);
    taken.other_classes = others;
    taken.parts = std::move(file.parts);
    return taken;
  } catch (const ArgumentError& error) {
    detail::fail<>("{}: {}", path.string(), error.what());
  }
}

}  // namespace athanor
