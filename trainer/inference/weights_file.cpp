#include "trainer/inference/weights_file.h"

#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/shape.h"
#include "nn/torch/torch_file.h"
#include "tensor/base/error.h"
#include "tensor/io/regular_file.h"
#include "tensor/io/safetensors.h"
#include "trainer/checkpoints/state_file.h"

namespace athanor {
namespace {

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

/// Integers cannot be trained.
void check_trainable(const std::filesystem::path& path, const ModelInfo& info) {
  ATH_CHECK(!info.is_quantized(),
            "{} must hold weights to train, but is quantized to {}; take the model that it was made of{}",
            path.string(), info.quantized, info.float_model.empty() ? "" : ", " + info.float_model);
}

WeightsFile read(const std::filesystem::path& path, bool averages) {
  WeightsFile file;
  if (torch_file::is_torch_file(path)) {
    file.weights = torch_file::load(path, &file.parts, averages);
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
    return file;
  }
  if (is(StateFile::checkpoint)) {
    file.weights = {};
    const StateDict checkpoint = load_state_file(path, StateFile::checkpoint);
    file.weights = checkpoint.under("model.");
  }
  file.info = described(metadata);
  return file;
}

}  // namespace

WeightsFile read_weights(const std::filesystem::path& path, bool averages) {
  try {
    WeightsFile file = read(path, averages);
    check_values(file.weights);
    return file;
  } catch (const ArgumentError& error) {
    detail::fail<IoError>("weights: {} cannot be used: {}", path.string(), error.what());
  }
}

nn::Pretrained load_pretrained(nn::Module& model, const WeightsFile& file,
                               const nn::PretrainedOptions& options) {
  nn::Pretrained taken = nn::load_pretrained(model, file.weights, options);
  const std::vector<std::string>& parts = file.parts.names;
  taken.averaged |= file.parts.averaged;
  if (parts.empty()) return taken;
  for (std::string& part : taken.parts) part = fmt::format("{}.{}", parts.front(), part);
  taken.parts.insert(taken.parts.end(), parts.begin() + (taken.parts.empty() ? 0 : 1), parts.end());
  return taken;
}

std::string choice_of(const nn::Pretrained& taken) {
  if (taken.parts.size() < 2) return {};
  return fmt::format("under '{}', {}not {}", taken.parts[0], taken.averaged ? "a running average, " : "",
                     list_names({taken.parts.begin() + 1, taken.parts.end()}));
}

nn::Pretrained load_weights(const std::filesystem::path& path, nn::Module& model,
                            const nn::PretrainedOptions& options,
                            const std::vector<std::string>& class_names) {
  WeightsFile file = read_weights(path, options.averages);
  if (file.info) check_trainable(path, *file.info);
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
    nn::Pretrained taken = load_pretrained(model, file, how);
    taken.other_classes = other_classes;
    return taken;
  } catch (const ArgumentError& error) {
    detail::fail<>("{}: {}", path.string(), error.what());
  }
}

}  // namespace athanor
