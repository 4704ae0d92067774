#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>

#include "tensor.h"

namespace engine {

/// What a program must remember to go on after its end: tensors and whole numbers, by name. A tensor here
/// shares its memory with the part of the program that it belongs to, so that writing through it changes that
/// part.
struct State {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::int64_t> integers;
};

/// FNV-1a with 64 bits, a checksum: any one byte that differs changes it. `hash` is that of the bytes before,
/// to go on from.
inline std::uint64_t hash_bytes(const void* bytes, std::size_t size,
                                std::uint64_t hash = 0xcbf29ce484222325ull) {
  for (std::size_t i = 0; i < size; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3ull;
  return hash;
}

/// Writes one file that holds all of `state`, every bit of it, and a checksum. At each moment the name `path`
/// stands for a whole file: the earlier one, or this. When the function has returned it is this one, also
/// after a power cut. The file is written under the name `path` +
/// ".tmp" first. Throws std::runtime_error that names the path and the reason (such as a full disk); then the
/// earlier file is as it was, unless only the last fsync, that of the folder, failed; and no ".tmp" remains.
void save_state(const std::string& path, const State& state);

/// Reads what save_state() wrote. Throws std::runtime_error that names the path if there is no such file, or
/// if it is not whole: cut, longer, or with any bit changed.
State load_state(const std::string& path);

/// The checkpoints of one run: "step-00000040.ckpt" is that of step 40.
class CheckpointFolder {
 public:
  /// Makes the folder, and those above it, if there is none, and removes files that a killed run had not
  /// finished: those whose name ends with ".tmp".
  explicit CheckpointFolder(std::string path, int keep = 2);

  /// Saves the state of `step`, a number of 0 or more. Then removes the checkpoints of later steps, which
  /// belong to a run that was given up, and of those that are left all but the newest `keep`.
  void save(std::int64_t step, const State& state) const;

  /// The state of the newest checkpoint that is whole, if there is any. Each newer one that is damaged is
  /// passed over, with one line in `notes` that begins "skipped: " and names the file.
  std::optional<State> newest(std::ostream& notes) const;

 private:
  std::string path_;
  int keep_;
};

}  // namespace engine
