#pragma once

#include <optional>
#include <string>

#include "data/formats/detail/file_bytes.h"

namespace athanor::detail {

/// Iterates over the regular files in a tar archive: ustar, pax and GNU.
class TarReader {
 public:
  /// `file` must outlive this object.
  explicit TarReader(const FileBytes& file) : file_(file) {}

  /// Advances to the next file; false at the archive's end. Throws IoError if it is damaged or truncated.
  bool next();
  const std::string& name() const { return name_; }
  /// The offset of its content.
  std::int64_t offset() const { return offset_; }
  std::int64_t size() const { return size_; }

 private:
  std::int64_t number(std::int64_t at, std::int64_t length, const char* what) const;
  void check_sum(std::int64_t header) const;
  void read_pax();
  [[noreturn]] void fail_sparse(std::int64_t at) const;

  const FileBytes& file_;
  std::int64_t at_ = 0;  ///< of the next header
  std::string name_, long_name_;
  std::int64_t offset_ = 0, size_ = 0;
  std::optional<std::int64_t> pax_size_;
};

}  // namespace athanor::detail
