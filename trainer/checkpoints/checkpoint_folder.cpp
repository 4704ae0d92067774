#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "tensor/base/error.h"
#include "tensor/io/atomic_file.h"
#include "trainer/checkpoints/checkpoint.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

std::string name_of_step(std::int64_t step) {
  return fmt::format("step-{:08}.safetensors", step);
}

/// The step of a name by name_of_step(), followed by `rest`; -1: it is no such name.
std::int64_t step_of(std::string_view name, std::string_view* rest) {
  constexpr std::string_view kBegin = "step-";
  std::int64_t step = -1;
  if (name.starts_with(kBegin)) std::from_chars(name.data() + kBegin.size(), name.data() + name.size(), step);
  const std::string whole = name_of_step(step);
  if (step < 0 || !name.starts_with(whole)) return -1;
  *rest = name.substr(whole.size());
  return step;
}

/// The names of the files in a folder; empty without the folder.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) names.push_back(at->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    detail::fail<IoError>("--checkpoint-dir: {} must be a folder that can be read, but got: {}",
                          folder.string(), error.message());
  }
  return names;
}

std::vector<std::int64_t> steps_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    std::string_view rest;
    if (const std::int64_t step = step_of(name, &rest); step >= 0 && rest.empty()) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace

NewestCheckpoint newest_valid(const fs::path& folder) {
  NewestCheckpoint newest;
  const std::vector<std::int64_t> steps = steps_in(folder);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const fs::path path = folder / name_of_step(*step);
    try {
      newest.state = load_checkpoint(path);
      newest.path = path;
      break;
    } catch (const IoError& error) {
      newest.skipped.emplace_back(error.what());
    }
  }
  return newest;
}

CheckpointFolder::CheckpointFolder(fs::path folder, std::int64_t keep)
    : lock_(std::move(folder), "--checkpoint-dir"), keep_(keep) {
  ATH_CHECK(keep >= 1, "checkpoints: must keep at least 1, but got {}", keep);
  try {
    const AtomicFile probe(path_of(0));  // never committed, so it leaves nothing
  } catch (const IoError& reason) {
    detail::fail<IoError>("--checkpoint-dir: {} must be a folder that can be written, but got: {}",
                          path().string(), reason.what());
  }
  for (const std::string& name : names_in(path())) {
    std::error_code ignored;
    std::string_view rest;
    if (step_of(name, &rest) >= 0 && AtomicFile::is_suffix(rest)) fs::remove(path() / name, ignored);
  }
}

void CheckpointFolder::save(std::int64_t step, const StateDict& state, const dist::ReadTensor& read,
                            std::span<const std::int64_t> best) {
  save_checkpoint(path_of(step), state, read, about_);
  std::vector<std::int64_t> old = steps();
  old.erase(std::upper_bound(old.begin(), old.end(), step), old.end());
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep_) < old.size(); ++i) {
    if (std::find(best.begin(), best.end(), old[i]) != best.end()) continue;
    std::error_code ignored;  // a surplus file must not end a training
    fs::remove(path_of(old[i]), ignored);
  }
}

std::vector<std::int64_t> CheckpointFolder::steps() const {
  return steps_in(path());
}

fs::path CheckpointFolder::path_of(std::int64_t step) const {
  return path() / name_of_step(step);
}

}  // namespace athanor
