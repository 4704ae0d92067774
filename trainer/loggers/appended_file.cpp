#include "trainer/loggers/appended_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/base/error.h"

namespace athanor {
namespace {

/// At most the last `most` bytes of a regular file.
std::string end_of(const std::filesystem::path& path, std::uint64_t most) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<std::uint64_t>(std::max<std::streamoff>(in.tellg(), 0));
  std::string text(std::min(size, most), '\0');
  in.seekg(static_cast<std::streamoff>(size - text.size()));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace

AppendedFile::AppendedFile(const char* flag, std::filesystem::path path)
    : flag_(flag), path_(std::move(path)) {
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) {
    detail::fail<IoError>("{}: {} must be a file that can be written, but got: {}", flag_, path_.string(),
                          std::strerror(errno));
  }
}

AppendedFile::~AppendedFile() {
  close(file_);
}

std::string AppendedFile::content() const {
  return end_of(path_, UINT64_MAX);
}

std::string AppendedFile::unfinished_line() const {
  std::string end = end_of(path_, std::uint64_t{16} << 20);
  const std::size_t last = end.rfind('\n');
  return last == end.npos ? end : end.substr(last + 1);
}

/// Returns whether another program had removed the file, and a new one is there.
bool AppendedFile::reopen_if_removed() {
  struct stat status {};
  if (fstat(file_, &status) != 0 || status.st_nlink > 0) return false;
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  const int again = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (again < 0) return false;
  close(file_);
  file_ = again;
  return true;
}

void AppendedFile::append(std::string_view bytes) {
  if (reopen_if_removed()) append(head_);
  const off_t begin = lseek(file_, 0, SEEK_END);
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = write(file_, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      const std::string why = std::strerror(errno);
      if (begin >= 0) (void)!ftruncate(file_, begin);  // on a full disk: half a line would corrupt the next
      detail::fail<IoError>("{}: {} cannot be written: {}", flag_, path_.string(), why);
    }
    done += static_cast<std::size_t>(wrote);
  }
}

void AppendedFile::remove_last(std::size_t bytes) {
  const off_t end = lseek(file_, 0, SEEK_END);
  if (end < static_cast<off_t>(bytes) || ftruncate(file_, end - static_cast<off_t>(bytes)) != 0)
    detail::fail<IoError>("{}: {} cannot be truncated: {}", flag_, path_.string(), std::strerror(errno));
}

}  // namespace athanor
