#include "trainer/checkpoints/run_folder.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <span>

#include <fmt/chrono.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tensor/atomic_file.h"
#include "tensor/error.h"
#include "tensor/version.h"
#include "trainer/flags/detail/recipe_file.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// The numbers used as folder names in `root`, in ascending order.
std::vector<std::int64_t> numbers_in(const fs::path& root) {
  std::vector<std::int64_t> numbers;
  std::error_code error;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::int64_t number = 0;
    const auto [stop, wrong] = std::from_chars(name.data(), name.data() + name.size(), number);
    std::error_code ignored;
    if (wrong == std::errc() && number > 0 && fmt::to_string(number) == name && at->is_directory(ignored))
      numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// Replaces a link atomically. File systems without links have none.
void link_latest(const fs::path& root, const std::string& name) {
  std::error_code error;
  const fs::path fresh = root / fmt::format(".latest.{}", ::getpid());
  fs::remove(fresh, error);
  fs::create_directory_symlink(name, fresh, error);
  if (!error) fs::rename(fresh, root / "latest", error);
  if (error) fs::remove(fresh, error);
}

fs::path folder_of_phase(const fs::path& run_dir, const std::string& phase) {
  return phase.empty() ? run_dir : run_dir / phase;
}

}  // namespace

fs::path make_run_folder(const fs::path& root) {
  const auto check = [&](const std::error_code& error) {
    if (!error) return;
    detail::fail<IoError>(
        "--run-dir: {} must be a folder in which runs can create theirs, but got: {}; choose another folder, "
        "or none",
        root.string(), error.message());
  };
  std::error_code error;
  fs::create_directories(root, error);
  check(error);
  const std::vector<std::int64_t> taken = numbers_in(root);
  for (std::int64_t number = taken.empty() ? 1 : taken.back() + 1;; ++number) {
    const fs::path folder = root / fmt::to_string(number);
    if (fs::create_directory(folder, error)) {
      link_latest(root, folder.filename().string());
      return folder;
    }
    if (error != std::errc::file_exists) check(error);  // the name may belong to a file
  }
}

void remove_unused_run_folder(const fs::path& folder) noexcept try {
  for (const fs::directory_entry& at : fs::recursive_directory_iterator(folder))
    if (!at.is_directory() && !(at.is_regular_file() && at.file_size() == 0)) return;
  fs::remove_all(folder);
  const fs::path root = folder.parent_path();
  const std::vector<std::int64_t> left = numbers_in(root);
  if (left.empty()) {
    fs::remove(root / "latest");
  } else {
    link_latest(root, fmt::to_string(left.back()));
  }
} catch (const std::exception&) {  // an empty folder stays
}

std::vector<fs::path> run_folders(const fs::path& root) {
  std::vector<fs::path> folders;
  for (const std::int64_t number : numbers_in(root)) folders.push_back(root / fmt::to_string(number));
  std::reverse(folders.begin(), folders.end());
  return folders;
}

fs::path model_path(const fs::path& run_dir, const std::string& phase) {
  return folder_of_phase(run_dir, phase) / "model.safetensors";
}

fs::path model_of(const fs::path& given) {
  std::error_code ignored;
  if (!fs::is_directory(given, ignored)) return given;
  const fs::path path = model_path(given, "");
  if (!fs::exists(path, ignored))
    detail::fail<IoError>(
        "model: {} must hold model.safetensors, but does not: its run has not finished (continue it with "
        "--resume auto) or has failed",
        given.string());
  return path;
}

fs::path last_model_path(const fs::path& run_dir, const std::string& phase) {
  return folder_of_phase(run_dir, phase) / "last.safetensors";
}

void write_config(const fs::path& run_dir, const TrainerConfig& config) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  Json all{{"program", config.program},
           {"version", version()},
           {"began", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
           {"command", config.command}};
  for (const FlagValue& flag : config.flags)
    all["flags"][flag.name] = {{"value", flag.value}, {"from", flag.from}};
  const std::string text = all.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  AtomicFile file(run_dir / "config.json");
  file.write(std::as_bytes(std::span(text)));
  file.commit();
  write_recipe(run_dir, config);
}

}  // namespace athanor
