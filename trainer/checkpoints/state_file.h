#pragma once

#include <cstdint>
#include <filesystem>

#include "dist/gather_state.h"
#include "tensor/state_dict.h"

namespace athanor {

/// What a run saves: all that the rest of it depends on, or the weights it ends with, to be used.
enum class StateFile : std::uint8_t { checkpoint, model };

/// The value of "format" in a file's metadata.
constexpr const char* format_of(StateFile kind) {
  return kind == StateFile::checkpoint ? "athanor.checkpoint" : "athanor.model";
}

/// Writes `state` as a safetensors file with its kind, the version of its schema and a CRC-32 over all
/// entries (names, kinds, shapes, dtypes, values) in its metadata. The file appears whole or not at all; what
/// was at `path` stays until then. Tensors may be strided and on any device (then a counted wait); `read`
/// gives those that are sharded (dist/gather_state.h), and the file is the same, byte for byte, whatever the
/// ranks. Throws IoError naming the file and the system's reason; ArgumentError where `read` has but a part.
void save_state_file(const std::filesystem::path& path, StateFile kind, const StateDict& state,
                     const dist::ReadTensor& read = dist::read_whole);

/// Whether a file's checksum is computed, which reads all of it. Of several ranks that load the same file,
/// one does.
enum class Verify : std::uint8_t { all, header };

/// Reads one and checks it. Tensors are views of the mapped file, as safetensors::load() gives them.
/// Throws IoError naming the file and what is wrong with it; of another kind, too.
StateDict load_state_file(const std::filesystem::path& path, StateFile kind, Verify verify = Verify::all);

}  // namespace athanor
