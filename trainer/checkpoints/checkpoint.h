#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoints/run_folder.h"
#include "trainer/checkpoints/state_file.h"

namespace athanor {

/// A checkpoint's file: state_file.h.
inline void save_checkpoint(const std::filesystem::path& path, const StateDict& state,
                            const dist::ReadTensor& read = dist::read_whole,
                            const safetensors::Metadata& about = {}) {
  save_state_file(path, StateFile::checkpoint, state, read, about);
}
inline StateDict load_checkpoint(const std::filesystem::path& path, Verify verify = Verify::all) {
  return load_state_file(path, StateFile::checkpoint, verify);
}

/// The newest valid checkpoint of a folder.
struct NewestCheckpoint {
  std::filesystem::path path;  ///< empty: none
  StateDict state;
  std::vector<std::string> skipped;  ///< newer, unreadable ones: messages of load_checkpoint()
};

/// Tries the checkpoints of a folder from the newest back; a missing folder has none. Throws IoError if it
/// cannot be read.
NewestCheckpoint newest_valid(const std::filesystem::path& folder);

/// A run's folder of checkpoints, named step-00000042.safetensors after 42 attempted steps: between two
/// saves, all steps may have been skipped. While it lives, no other run, of any process, can use the folder.
class CheckpointFolder {
 public:
  /// Creates the folder if missing, and removes remains of killed saves. Throws IoError if it cannot be
  /// written, ArgumentError if another run is using it.
  explicit CheckpointFolder(std::filesystem::path folder, std::int64_t keep = 3);

  bool remake() { return lock_.remake(); }
  /// Metadata of the checkpoints saved from now on.
  void describe(safetensors::Metadata about) { about_ = std::move(about); }
  /// Saves the checkpoint of a step, then removes earlier ones except the newest `keep`, itself included, and
  /// those of the steps `best`. Throws as save_checkpoint() does, and then has removed nothing.
  void save(std::int64_t step, const StateDict& state, const dist::ReadTensor& read = dist::read_whole,
            std::span<const std::int64_t> best = {});

  /// The steps with files, valid or not, in ascending order.
  std::vector<std::int64_t> steps() const;
  std::filesystem::path path_of(std::int64_t step) const;
  const std::filesystem::path& path() const { return lock_.folder(); }

 private:
  FolderLock lock_;
  std::int64_t keep_;
  safetensors::Metadata about_;
};

}  // namespace athanor
