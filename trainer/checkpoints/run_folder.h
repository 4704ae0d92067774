#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/config.h"

namespace athanor {

/// The folders of a program's runs: ROOT/1, ROOT/2 and so on, and a link ROOT/latest to the newest. A run's
/// folder contains
///
///     model.safetensors  the run's reported weights, with everything needed to use them: model_file.h
///     last.safetensors   those of the last step, if different
///     metrics.jsonl  checkpoints/  samples/  config.json
///
/// In a run with phases, the first two are in folders named after the phases.

/// Creates the next folder below `root`, and links `latest` to it; `note` tells the user where that fails.
/// Concurrent programs each get their own. Throws IoError.
std::filesystem::path make_run_folder(const std::filesystem::path& root, std::string* note = nullptr);
/// Links `latest` to such a folder.
void link_latest(const std::filesystem::path& folder);
/// Removes such a folder if nothing has been written to its files, and links `latest` to the newest one left.
void remove_unused_run_folder(const std::filesystem::path& folder) noexcept;
/// The existing ones, newest first; none without `root`.
std::vector<std::filesystem::path> run_folders(const std::filesystem::path& root);

/// A folder into which no other run writes, of any process, while this lives. The lock ends with the process.
/// File systems without locks are not protected.
class FolderLock {
 public:
  /// Creates the folder if missing. `flag` names it in messages. Throws IoError if it cannot be created,
  /// ArgumentError if another run is using it.
  FolderLock(std::filesystem::path folder, const char* flag);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  /// Creates and locks the folder again if another program has removed it. Returns whether it had.
  bool remake();

 private:
  void lock();

  std::filesystem::path folder_;
  const char* flag_;
  int file_ = -1;
};

/// A run's files of that phase; empty: no phases.
std::filesystem::path model_path(const std::filesystem::path& run_dir, const std::string& phase);
/// The model at a user's path: a file, or the folder of a run. Throws IoError if the folder has none.
std::filesystem::path model_of(const std::filesystem::path& given);
std::filesystem::path last_model_path(const std::filesystem::path& run_dir, const std::string& phase);

/// Writes config.json: program, version, start time, command, and each flag's value and origin.
void write_config(const std::filesystem::path& run_dir, const TrainerConfig& config);

}  // namespace athanor
