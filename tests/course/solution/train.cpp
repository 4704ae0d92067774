#include "train.h"

#include <stdexcept>

namespace engine {

State state_of(const TrainingRun& run) {
  State state;
  for (const auto& [name, parameter] : run.network.parameters())
    state.tensors.emplace("model." + name, parameter.value());
  for (const auto& [name, buffer] : run.network.buffers()) state.tensors.emplace("model." + name, buffer);
  for (const auto& [name, tensor] : run.optimizer.state()) state.tensors.emplace("optimizer." + name, tensor);
  for (const auto& [name, tensor] : run.others) state.tensors.emplace("others." + name, tensor);
  state.integers = {{"seed", static_cast<std::int64_t>(run.progress.seed)},
                    {"step", run.progress.step},
                    {"epoch", run.progress.epoch},
                    {"position", run.progress.position}};
  return state;
}

void restore(TrainingRun& run, const State& state) {
  const auto check = [](bool right, const std::string& text) {
    if (!right) throw std::invalid_argument("restore: " + text);
  };
  const State own = state_of(run);
  const auto check_names = [&](const auto& ours, const auto& theirs) {
    for (const auto& [name, value] : ours)
      check(theirs.contains(name), name + " is missing from the checkpoint");
    for (const auto& [name, value] : theirs)
      check(ours.contains(name), name + " of the checkpoint is not known to the run");
  };
  check_names(own.tensors, state.tensors);
  check_names(own.integers, state.integers);
  for (const auto& [name, tensor] : own.tensors)
    check(state.tensors.at(name).shape() == tensor.shape(), name + " has another shape in the checkpoint");
  check(state.integers.at("seed") == own.integers.at("seed"),
        "the checkpoint is of seed " + std::to_string(static_cast<std::uint64_t>(state.integers.at("seed"))) +
            ", but the run's is " + std::to_string(run.progress.seed) + ": take another folder");

  for (const auto& [name, tensor] : own.tensors) copy(state.tensors.at(name), tensor);
  run.progress.step = state.integers.at("step");
  run.progress.epoch = state.integers.at("epoch");
  run.progress.position = state.integers.at("position");
}

void train(TrainingRun& run, const Dataset& data, const TrainOptions& options, std::ostream& notes) {
  if (options.batch_size < 1 || options.batch_size > data.size() || options.save_every < 1)
    throw std::invalid_argument("train: batch_size must be in [1, " + std::to_string(data.size()) +
                                "] and save_every at least 1, but they are " +
                                std::to_string(options.batch_size) + " and " +
                                std::to_string(options.save_every));
  std::optional<CheckpointFolder> folder;
  if (!options.folder.empty()) folder.emplace(options.folder);
  if (const auto saved = folder ? folder->newest(notes) : std::nullopt) {
    restore(run, *saved);
    notes << "resumed at step " << run.progress.step << " of " << options.steps << "\n";
  }

  Progress& at = run.progress;
  run.network.train(true);
  std::vector<std::int64_t> order = epoch_order(data.size(), at.seed, at.epoch);
  while (at.step < options.steps) {
    if (at.position + options.batch_size > data.size()) {
      at.position = 0;
      order = epoch_order(data.size(), at.seed, ++at.epoch);
    }
    const Dataset batch = batch_of(data, order, at.position, options.batch_size);
    run.optimizer.clear_grads();
    backward(cross_entropy(run.network.forward(Variable(batch.images)), batch.labels));
    run.optimizer.step(cosine_rate(options.lr, at.step, options.warmup, options.steps));
    ++at.step;
    at.position += options.batch_size;
    if (folder && (at.step % options.save_every == 0 || at.step == options.steps))
      folder->save(at.step, state_of(run));
  }
}

std::uint64_t hash_of(const Module& network) {
  std::uint64_t hash = hash_bytes(nullptr, 0);
  const auto add = [&](const Tensor& tensor) {
    const std::vector<float> values = tensor.values();
    hash = hash_bytes(values.data(), values.size() * sizeof(float), hash);
  };
  for (const auto& [name, parameter] : network.parameters()) add(parameter.value());
  for (const auto& [name, buffer] : network.buffers()) add(buffer);
  return hash;
}

std::shared_ptr<Module> digits_cnn(std::uint64_t seed) {
  const Conv2d::Options same{.stride = 1, .padding = 1};
  return std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
      std::make_shared<Conv2d>(1, 8, 3, same, seed), std::make_shared<BatchNorm2d>(8),
      std::make_shared<ReLU>(), std::make_shared<MaxPool2d>(2),
      std::make_shared<Conv2d>(8, 16, 3, same, seed + 1), std::make_shared<BatchNorm2d>(16),
      std::make_shared<ReLU>(), std::make_shared<MaxPool2d>(2), std::make_shared<Flatten>(),
      std::make_shared<Linear>(64, 10, seed + 2)});
}

}  // namespace engine
