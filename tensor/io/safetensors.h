#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "tensor/state_dict.h"

namespace athanor::safetensors {

/// Free text that a file carries in addition to its tensors: "format", "model", ...
using Metadata = std::map<std::string, std::string>;

/// Reads a safetensors file: 8 bytes of header length (little endian), a JSON header, tensor bytes.
///
/// The file is read into memory, of which tensors are views and which lives as long as any of them. A tensor
/// whose bytes are misaligned for its dtype is copied. Integers, reals and texts that save() put into the
/// metadata are restored in place.
///
/// Nothing in the file is trusted. Throws IoError naming the file, the byte and what was expected there: a
/// truncated file, a header length outside the file or over 100 MB, JSON that is invalid or not the format's,
/// text that is not UTF-8, a duplicate name, an unknown dtype, a rank over 8, a shape that is too large or
/// does not fit its bytes, ranges that overlap, leave gaps or do not end with the file, a bool other than 0
/// or 1. Source: https://github.com/huggingface/safetensors, "Format".
StateDict load(const std::filesystem::path& path, Metadata* metadata = nullptr);

/// Writes `entries` to a file that appears complete or not at all. Equal entries give equal bytes. The header
/// lists tensors in the entries' order. Their bytes are in descending order of alignment, so that every
/// reader can map them. Tensors may be strided and on any device (then a counted wait). Other entries go to
/// the metadata under keys that begin with "athanor:".
/// Throws ArgumentError on text that is not UTF-8 and on metadata keys with that prefix; IoError.
void save(const std::filesystem::path& path, const StateDict& entries, const Metadata& metadata = {});

/// Supplies the bytes of tensors that are not wholly on this rank.
struct Source {
  using Sink = std::function<void(std::span<const std::byte>)>;
  /// Passes the bytes of an entry's whole tensor (or sharded one) to `sink`, in order, in any number of
  /// pieces. Called once per tensor, in file order.
  std::function<void(const StateDict::Entry&, const Sink& sink)> read;
  /// The final metadata, requested after all tensors are written: a checksum of their bytes. It must have the
  /// length of the metadata given first.
  std::function<Metadata()> metadata;
};
/// The same from a source, with entries that may be sharded. Also throws ArgumentError if a tensor's byte
/// count does not match its shape, or the metadata's length changes.
void save(const std::filesystem::path& path, const StateDict& entries, const Metadata& metadata,
          const Source& source);

}  // namespace athanor::safetensors
