#include "trainer/inference/weights_file.h"

#include <cstdio>
#include <limits>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

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

/// The row of `from` for each name of `to`; nullopt if these are other names.
std::optional<std::vector<std::int64_t>> rows_of(const std::vector<std::string>& from,
                                                 const std::vector<std::string>& to) {
  std::unordered_map<std::string_view, std::int64_t> left;
  for (std::size_t i = 0; i < from.size(); ++i) left.emplace(from[i], static_cast<std::int64_t>(i));
  std::vector<std::int64_t> rows;
  for (const std::string& name : to) {
    const auto at = left.find(name);
    if (at == left.end()) return std::nullopt;
    rows.push_back(at->second);
    left.erase(at);
  }
  return left.empty() ? std::optional(std::move(rows)) : std::nullopt;
}

/// The weights with the rows of the last layer in that order.
StateDict with_rows_of_head(const StateDict& weights, const nn::Module& model,
                            const std::vector<std::int64_t>& rows) {
  const std::string last = model.parameters().back().name, head = last.substr(0, last.rfind('.') + 1);
  const Tensor index = Tensor::from(rows, {std::ssize(rows)});
  StateDict moved;
  for (const StateDict::Entry& entry : weights) {
    const Tensor* const tensor = std::get_if<Tensor>(&entry.value);
    const bool of_head =
        tensor && entry.name.starts_with(head) && tensor->rank() > 0 && tensor->dim(0) == std::ssize(rows);
    moved.set(entry.name, of_head ? index_select(*tensor, 0, index) : entry.value);
  }
  return moved;
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
  const auto is = [&](StateFile kind) { return metadata["format"] == format_of(kind); };
  if (is(StateFile::model)) {
    file.weights = {};  // a large file is in memory once
    ModelFile model = load_model(path);
    file.weights = std::move(model.weights);
    file.info = std::move(model.info);
  } else if (is(StateFile::checkpoint)) {
    file.weights = {};
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
  bool other_classes = false;
  const auto theirs = file.info ? file.info->class_names : std::vector<std::string>();
  if (!theirs.empty() && !class_names.empty() && theirs != class_names) {
    const auto rows = rows_of(theirs, class_names);
    if (rows) file.weights = with_rows_of_head(file.weights, model, *rows);
    other_classes = !rows;
    how.reset_head |= other_classes;
  }
  try {
    nn::Pretrained taken = nn::load_pretrained(model, file.weights, how);
    taken.other_classes = other_classes;
    taken.parts = std::move(file.parts);
    return taken;
  } catch (const ArgumentError& error) {
    detail::fail<>("{}: {}", path.string(), error.what());
  }
}

}  // namespace athanor
