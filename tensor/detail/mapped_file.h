#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "tensor/ref.h"

namespace athanor {

/// A whole file mapped into memory: bytes are read on use. Writes go to private pages, never to the file.
/// Private to tensor/.
class MappedFile final : public RefCounted {
 public:
  /// Throws IoError whose message begins with `who`.
  MappedFile(const std::filesystem::path& path, const char* who);

  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  ~MappedFile() override;

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace athanor
