#include "tensor/io/loaded_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "tensor/base/error.h"

namespace athanor {

LoadedFile::LoadedFile(const std::filesystem::path& path, const char* who)
    : file_(path), name_(fmt::format("{}: {}", who, path.string())) {
  if (!file_.problem().empty()) detail::fail<IoError>("{} {}", name_, file_.problem());
  const auto size = static_cast<std::size_t>(file_.bytes());
  if (size == 0) return;
  // Not the file: a mapping of it would end the process if the file became shorter.
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    detail::fail<IoError>("{}: its {} bytes must fit into memory: {}", name_, size, std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(data);
  bytes_ = size;
}

LoadedFile::~LoadedFile() {
  if (data_) ::munmap(data_, bytes_);
}

void LoadedFile::read_to(std::size_t count) {
  count = std::min(count, bytes_);
  if (count <= read_) return;
  read_ += file_.read_at(read_, bytes().subspan(read_, count - read_));
  if (read_ == count) return;
  detail::fail<IoError>("{}: at byte {}: {}", name_, read_,
                        errno != 0 ? fmt::format("cannot be read: {}", std::strerror(errno))
                                   : fmt::format("expected {} bytes, but the file ends", bytes_));
}

}  // namespace athanor
