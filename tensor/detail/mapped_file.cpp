#include "tensor/detail/mapped_file.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "tensor/error.h"
#include "tensor/regular_file.h"

namespace athanor {

MappedFile::MappedFile(const std::filesystem::path& path, const char* who) {
  const RegularFile file(path);
  if (!file.problem().empty()) detail::fail<IoError>("{}: {} {}", who, path.string(), file.problem());
  bytes_ = static_cast<std::size_t>(file.bytes());
  if (bytes_ == 0) return;
  // Private and writable: a tensor may be written in place without touching the file.
  void* data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.descriptor(), 0);
  if (data == MAP_FAILED) {
    detail::fail<IoError>("{}: cannot map {}: {}", who, path.string(), std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, bytes_);
}

}  // namespace athanor
