#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "tensor/state_dict.h"

namespace athanor::safetensors {

/// Free text a file carries besides its tensors: "format", "model", ...
using Metadata = std::map<std::string, std::string>;

/// Reads a safetensors file: 8 bytes of header length (little endian), a JSON header, tensor bytes.
///
/// Tensors are views of the mapped file: nothing is read before it is used, and the mapping lives as long as
/// one of them. (Writes go to private pages, never to the file. Do not shorten the file while they live;
/// replacing it, as save() does, is safe.) A tensor whose bytes are not aligned for its dtype is copied.
/// Integers, reals and texts that save() put into the metadata come back in their places.
///
/// Nothing in the file is trusted. Throws IoError naming the file, the byte and what was expected there: a
/// truncated file, a header length outside the file or over 100 MB, JSON that is broken or is not the
/// format's, text that is not UTF-8, a name twice, an unknown dtype, a rank over 8, a shape too large or one
/// that does not fit its bytes, ranges that overlap, leave holes or do not end with the file, a bool that is
/// not 0 or 1. Source: https://github.com/huggingface/safetensors, "Format".
StateDict load(const std::filesystem::path& path, Metadata* metadata = nullptr);

/// Writes `entries` so that the file appears whole or not at all. The same entries give the same bytes.
/// The header lists tensors in the entries' order; their bytes lie in descending order of alignment, so that
/// every reader can map them. Tensors may be strided and on any device (then a counted wait). Entries that
/// are no tensors go to the metadata under keys that begin with "athanor:".
/// Throws ArgumentError on text that is not UTF-8 and on metadata keys with that beginning; IoError.
void save(const std::filesystem::path& path, const StateDict& entries, const Metadata& metadata = {});

/// Where the bytes of tensors come from that are not here as a whole.
struct Source {
  using Sink = std::function<void(std::span<const std::byte>)>;
  /// Hands the bytes of an entry's whole tensor, or sharded one, to `sink`, from first to last, in as many
  /// pieces as it likes. Called once per tensor, in the order of the file.
  std::function<void(const StateDict::Entry&, const Sink& sink)> read;
  /// The metadata to end with, asked for when all tensors are written: a checksum of what they were. As many
  /// characters as those given at first.
  std::function<Metadata()> metadata;
};
/// The same from a source, of entries that may be sharded. Throws ArgumentError, too, where a tensor has
/// another number of bytes than its shape says, or the metadata another length.
void save(const std::filesystem::path& path, const StateDict& entries, const Metadata& metadata,
          const Source& source);

}  // namespace athanor::safetensors
