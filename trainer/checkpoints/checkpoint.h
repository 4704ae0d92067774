#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
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

/// Tries the checkpoints of a folder from the newest back. Ignores files with other names (incomplete files
/// have other names); a missing folder has none. Changes nothing. Throws IoError if the folder cannot be
/// read.
NewestCheckpoint newest_valid(const std::filesystem::path& folder);

/// A run's folder of checkpoints, named step-00000042.safetensors after 42 attempted steps. (Attempted, not
/// applied: two saves with only skipped steps between them are different checkpoints and need different
/// names.) While it lives, no other run, of any process, can use the folder.
class CheckpointFolder {
 public:
  /// Creates the folder if missing, and removes remains of killed saves. Throws IoError if it cannot be
  /// written, ArgumentError if another run is using it.
  explicit CheckpointFolder(std::filesystem::path folder, std::int64_t keep = 3);

  /// FolderLock::remake().
  bool remake() { return lock_.remake(); }

  /// Sets the metadata of the checkpoints saved from now on.
  void describe(safetensors::Metadata about) { about_ = std::move(about); }
  /// Saves the checkpoint of a step. Once it is safely written, removes earlier ones except the newest
  /// `keep`, itself included, and those of the steps `best`. Checkpoints of later steps, which this run has
  /// not reached yet, are kept. Throws as save_checkpoint() does, and then has removed nothing.
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
