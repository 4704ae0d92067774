#include "trainer/checkpoints/split_file.h"

#include <unordered_map>

#include "tensor/safetensors.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

fs::path path_in(const fs::path& run_dir) {
  return run_dir / "split.safetensors";
}

Tensor ids_of(const Dataset& data) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < data.size(); ++i) ids.push_back(static_cast<std::int64_t>(data.sample_id(i)));
  return Tensor::from(ids, {std::ssize(ids)});
}

}  // namespace

void save_split(const fs::path& run_dir, const Dataset& train, const Dataset& held_out) {
  StateDict state;
  state.set("train", ids_of(train));
  state.set("validation", ids_of(held_out));
  safetensors::save(path_in(run_dir), state);
}

bool has_split(const fs::path& run_dir) {
  std::error_code ignored;
  return fs::exists(path_in(run_dir), ignored);
}

std::optional<FoundSplit> find_split(const fs::path& run_dir, const Dataset& data) {
  if (!has_split(run_dir)) return std::nullopt;
  const StateDict state = safetensors::load(path_in(run_dir));
  struct Count {
    std::int64_t train = 0, held_out = 0;  // samples may be equal: those of a packed file
  };
  std::unordered_map<std::int64_t, Count> known;
  const auto ids = [&](const char* name) {
    const Tensor& all = state.tensor(name);
    return std::span(all.data<std::int64_t>(), static_cast<std::size_t>(all.numel()));
  };
  for (const std::int64_t id : ids("train")) ++known[id].train;
  for (const std::int64_t id : ids("validation")) ++known[id].held_out;
  FoundSplit found;
  found.missing = std::ssize(ids("validation"));
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const auto at = known.find(static_cast<std::int64_t>(data.sample_id(i)));
    if (at == known.end()) {
      found.added.push_back(i);
    } else if (at->second.held_out > 0) {
      --at->second.held_out;
      --found.missing;
      found.held_out.push_back(i);
    } else if (at->second.train > 0) {
      --at->second.train;
    } else {
      found.added.push_back(i);
    }
  }
  return found;
}

}  // namespace athanor
