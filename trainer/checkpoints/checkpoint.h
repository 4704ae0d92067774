#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoints/state_file.h"

namespace athanor {

/// A checkpoint's file: state_file.h.
inline void save_checkpoint(const std::filesystem::path& path, const StateDict& state,
                            const dist::ReadTensor& read = dist::read_whole) {
  save_state_file(path, StateFile::checkpoint, state, read);
}
inline StateDict load_checkpoint(const std::filesystem::path& path, Verify verify = Verify::all) {
  return load_state_file(path, StateFile::checkpoint, verify);
}

/// The newest checkpoint of a folder that can be read.
struct NewestCheckpoint {
  std::filesystem::path path;  ///< empty: there is none
  StateDict state;
  std::vector<std::string> skipped;  ///< newer ones that could not be read: what load_checkpoint() said
};

/// Tries the checkpoints of a folder from the newest back. Files of other names (a half-written one has
/// another name) are not looked at; a folder that is not there holds none. Changes nothing. Throws IoError
/// where the folder cannot be read.
NewestCheckpoint newest_valid(const std::filesystem::path& folder);

/// A folder a run saves its checkpoints in, as step-00000042.safetensors: after 42 attempted steps.
/// (Attempted, not applied ones: two saves of a run whose steps are skipped meanwhile are different
/// checkpoints, and must not have one name.) While it lives, no other run, of this or another process, can
/// use the folder.
class CheckpointFolder {
 public:
  /// Makes the folder where there is none, and removes what a killed save left in it. Throws IoError where it
  /// cannot be written, ArgumentError where another run is using it.
  explicit CheckpointFolder(std::filesystem::path folder, std::int64_t keep = 3);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  /// Saves the checkpoint of a step; when it is safely there, removes those before it but the newest `keep`,
  /// itself included, and those of the steps `best`. Later steps, which this run has not come to yet, are
  /// left alone. Throws as save_checkpoint() does, and then has removed nothing.
  void save(std::int64_t step, const StateDict& state, const dist::ReadTensor& read = dist::read_whole,
            std::span<const std::int64_t> best = {});

  /// The steps there are files of, valid or not, in ascending order.
  std::vector<std::int64_t> steps() const;
  std::filesystem::path path_of(std::int64_t step) const;
  const std::filesystem::path& path() const { return folder_; }

 private:
  std::filesystem::path folder_;
  std::int64_t keep_;
  int lock_ = -1;
};

}  // namespace athanor
