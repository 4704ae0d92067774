#include "trainer/checkpoints/split_file.h"

#include <unordered_set>

#include "tensor/io/safetensors.h"

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

std::optional<FoundSplit> find_split(const fs::path& run_dir, const Dataset& data) {
  std::error_code ignored;
  if (!fs::exists(path_in(run_dir), ignored)) return std::nullopt;
  const StateDict state = safetensors::load(path_in(run_dir));
  // Samples may be equal: those of a packed file.
  const auto ids = [&](const char* name) {
    const Tensor& all = state.tensor(name);
    const auto* const first = all.data<std::int64_t>();
    return std::unordered_multiset<std::int64_t>(first, first + all.numel());
  };
  const auto take = [](std::unordered_multiset<std::int64_t>& from, std::int64_t id) {
    const auto at = from.find(id);
    const bool is_there = at != from.end();
    if (is_there) from.erase(at);
    return is_there;
  };
  auto train = ids("train"), held_out = ids("validation");
  FoundSplit found;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const auto id = static_cast<std::int64_t>(data.sample_id(i));
    if (take(held_out, id)) {
      found.held_out.push_back(i);
    } else if (!take(train, id)) {
      found.added.push_back(i);
    }
  }
  found.missing = std::ssize(held_out);
  return found;
}

}  // namespace athanor
