#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/formats/detail/file_bytes.h"

namespace athanor::detail {

/// What a comment of a global pax header begins with if the name of a class follows, percent_encoded().
inline constexpr char kTarClass[] = "athanor.class=";

/// "LENGTH KEY=VALUE" and a newline.
std::string pax_record(const std::string& key, const std::string& value);

/// Iterates over the regular files in a tar archive, and hard links to them: ustar, pax and GNU. Archives
/// that were joined (`cat a.tar b.tar`) are read on.
class TarReader {
 public:
  /// `file` must outlive this object.
  explicit TarReader(const FileBytes& file) : file_(file), pages_(file) {}

  /// Advances to the next file; false at the archive's end. Throws IoError if it is damaged or truncated.
  bool next();
  /// The same, passing over hard links.
  bool next_file() {
    follows_links_ = false;
    return next();
  }
  const std::string& name() const { return name_; }
  /// The offset of its content.
  std::int64_t offset() const { return offset_; }
  std::int64_t size() const { return size_; }
  /// What was passed over so far: links that are no hard links, devices, and bytes that are no archive.
  const std::vector<Unused>& unused() const { return unused_; }
  /// The names of classes that create_tar() wrote, in the headers so far.
  const std::vector<std::string>& class_names() const { return class_names_; }
  /// FileBytes::fail() with the name of the current member.
  template <class... Args>
  [[noreturn]] void fail(std::int64_t offset, fmt::format_string<Args...> message, Args&&... args) const {
    file_.fail(offset, "{}{}", fmt::format(message, std::forward<Args>(args)...), of_member());
  }

 private:
  /// " (member a.jpg)"; where its name is not known yet, " (after a.jpg)".
  std::string of_member() const;
  void must_have(std::int64_t offset, std::int64_t count, const char* what) const;
  std::span<const std::byte> at(std::int64_t offset, std::int64_t count, const char* what);
  bool at_end();
  void follow(const std::string& link);
  std::int64_t number(std::int64_t at, std::int64_t length, const char* what);
  void check_sum(std::int64_t header);
  void read_pax(bool global);
  [[noreturn]] void fail_sparse(std::int64_t at) const;

  const FileBytes& file_;
  FilePages pages_;
  std::int64_t at_ = 0;  ///< of the next header
  std::string name_, last_name_, long_name_, long_link_;
  std::int64_t offset_ = 0, size_ = 0;
  std::optional<std::int64_t> pax_size_;
  std::vector<std::string> class_names_;
  std::vector<Unused> unused_;
  /// Content of the archive's files, by name: for hard links, once there is one.
  std::unordered_map<std::string, std::pair<std::int64_t, std::int64_t>> contents_;
  bool follows_links_ = true;
};

}  // namespace athanor::detail
