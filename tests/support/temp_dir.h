#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace athanor::test {

/// A folder of a test's own, deleted with it.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "athanor-test-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("cannot make " + pattern);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(content.data(), std::ssize(content));
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace athanor::test

/// Skips a test that needs a data set's official files where ATHANOR_DATA_DIR does not name their folder.
#define ATHANOR_NEEDS_DATA(variable, name)                                                 \
  const char* variable##_root = std::getenv("ATHANOR_DATA_DIR");                           \
  if (!variable##_root) GTEST_SKIP() << "ATHANOR_DATA_DIR does not name a folder of data"; \
  const std::filesystem::path variable = std::filesystem::path(variable##_root) / (name);  \
  if (!std::filesystem::exists(variable)) GTEST_SKIP() << variable << " is not there"
