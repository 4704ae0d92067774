#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "tensor/base/ref.h"
#include "tensor/io/regular_file.h"

namespace athanor {

/// A file in memory, part by part: one that is shortened or damaged later changes no tensor. Private to
/// tensor/.
class LoadedFile final : public RefCounted {
 public:
  /// Reads nothing yet. Throws IoError whose message begins with `who`.
  LoadedFile(const std::filesystem::path& path, const char* who);

  /// Reads what is missing of the first `count` bytes, or of all. Throws IoError.
  void read_to(std::size_t count);
  /// All bytes; those beyond read_to() are zeros that take no memory.
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  ~LoadedFile() override;

  RegularFile file_;
  std::string name_;  ///< with `who`
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0, read_ = 0;
};

}  // namespace athanor
