#pragma once

#include <cstdint>
#include <filesystem>

#include "dist/gather_state.h"
#include "tensor/io/safetensors.h"
#include "tensor/state_dict.h"

namespace athanor {

/// The kind of a saved file: the complete state of a run, or final weights for use.
enum class StateFile : std::uint8_t { checkpoint, model };

/// The value of "format" in a file's metadata.
constexpr const char* format_of(StateFile kind) {
  return kind == StateFile::checkpoint ? "athanor.checkpoint" : "athanor.model";
}

/// A text in the metadata of a quantized network's weights: with it a file has a schema of its own.
inline constexpr char kQuantized[] = "quantized";

/// Writes `state` as a safetensors file, complete or not at all. Its metadata have its kind, a schema
/// version, the texts `about`, and a CRC-32 over these and all entries. Tensors may be strided and on any
/// device (then a counted wait); `read` provides sharded ones (dist/gather_state.h). Throws IoError naming
/// the file and the system's reason; ArgumentError if `read` lacks a part.
void save_state_file(const std::filesystem::path& path, StateFile kind, const StateDict& state,
                     const dist::ReadTensor& read = dist::read_whole,
                     const safetensors::Metadata& about = {});

/// Whether to verify the checksum, which reads the whole file. If several ranks load a file, one verifies it.
enum class Verify : std::uint8_t { all, header };

/// Reads and checks a file. Tensors are views of the file in memory, as from safetensors::load(). Throws
/// IoError naming the file and the problem, also on another kind. `about`: what save_state_file() got.
StateDict load_state_file(const std::filesystem::path& path, StateFile kind, Verify verify = Verify::all,
                          safetensors::Metadata* about = nullptr);

}  // namespace athanor
