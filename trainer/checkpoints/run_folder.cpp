#include "trainer/checkpoints/run_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/base/error.h"
#include "tensor/base/version.h"
#include "tensor/io/atomic_file.h"
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

/// Replaces a link atomically. Returns why there is none: some file systems have no links.
std::error_code link_latest(const fs::path& root, const std::string& name) {
  std::error_code error, ignored;
  const fs::path fresh = root / fmt::format(".latest.{}", ::getpid());
  fs::remove(fresh, error);
  fs::create_directory_symlink(name, fresh, error);
  if (!error) fs::rename(fresh, root / "latest", error);
  if (error) fs::remove(fresh, ignored);
  return error;
}

fs::path folder_of_phase(const fs::path& run_dir, const std::string& phase) {
  return phase.empty() ? run_dir : run_dir / phase;
}

}  // namespace

fs::path make_run_folder(const fs::path& root, std::string* note) {
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
      const std::error_code unlinked = link_latest(root, folder.filename().string());
      if (unlinked && note)
        *note = fmt::format("{} cannot be linked to this run's folder, {}: {}", (root / "latest").string(),
                            folder.string(), unlinked.message());
      return folder;
    }
    if (error != std::errc::file_exists) check(error);  // the name may belong to a file
  }
}

void link_latest(const fs::path& folder) {
  link_latest(folder.parent_path(), folder.filename().string());
}

FolderLock::FolderLock(fs::path folder, const char* flag) : folder_(std::move(folder)), flag_(flag) {
  lock();
}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

void FolderLock::lock() {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    detail::fail<IoError>("{}: {} must be a folder that can be created, but got: {}", flag_, folder_.string(),
                          error.message());
  }
  const int file = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(file);
    detail::fail<>("{}: {} is in use by another run; choose another folder", flag_, folder_.string());
  }
  if (file_ >= 0) ::close(file_);
  file_ = file;
}

bool FolderLock::remake() {
  struct stat named {
  }, ours{};
  if (::stat(folder_.c_str(), &named) == 0) {
    const bool same = file_ < 0 || (::fstat(file_, &ours) == 0 && named.st_dev == ours.st_dev &&
                                    named.st_ino == ours.st_ino);
    if (same) return false;
  } else if (errno != ENOENT) {
    return false;  // a file system that fails for a moment has removed nothing
  }
  lock();
  return true;
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
  if (!fs::exists(given, ignored))
    detail::fail<IoError>("model: {} must be a model or the folder of a run, but there is none",
                          given.string());
  if (!fs::is_directory(given, ignored)) return given;
  const fs::path path = model_path(given, "");
  if (fs::exists(path, ignored)) return path;
  const bool of_a_run = fs::exists(given / "config.json", ignored);
  const bool of_runs = fs::exists(model_path(given / "latest", ""), ignored);
  detail::fail<IoError>("model: {} must hold model.safetensors, but does not{}", given.string(),
                        of_a_run ? ": its run has not finished (continue it with --resume auto) or has failed"
                        : of_runs ? fmt::format("; did you mean '{}'?", (given / "latest").string())
                                  : ": it is no run's folder");
}

fs::path last_model_path(const fs::path& run_dir, const std::string& phase) {
  return folder_of_phase(run_dir, phase) / "last.safetensors";
}

void write_config(const fs::path& run_dir, const TrainerConfig& config) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  Json all{{"program", config.program},
           {"version", version()},
           {"began", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
           {"command", config.command},
           {"working_directory", fs::current_path().string()}};
  for (const FlagValue& flag : config.flags)
    all["flags"][flag.name] = {{"value", flag.value}, {"from", flag.from}};
  const std::string text = all.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  write_atomically(run_dir / "config.json", text);
  write_recipe(run_dir, config);
}

}  // namespace athanor
