#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::detail {

/// Rows of comma-separated values (RFC 4180), with lines ending in \n, \r\n or \r. A quoted cell may contain
/// commas, line ends and, doubled, quotes; surrounding blanks are removed from others. Blank lines are
/// skipped.
class CsvReader {
 public:
  /// `name`: prefix of messages. The text must outlive this object.
  CsvReader(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}

  /// The cells of the next row; false at the end. Throws IoError, "NAME, line N: ...".
  bool next(std::vector<std::string>& cells);
  /// First line of that row, counted from 1.
  std::int64_t line() const { return first_line_; }

 private:
  bool take_cell(std::string& cell);
  void take_quoted(std::string& cell);
  void skip_blanks();
  [[noreturn]] void fail(std::int64_t line, const std::string& message) const;

  std::string_view text_;  // the remaining text
  std::string name_;
  std::int64_t line_ = 1, first_line_ = 1;
};

}  // namespace athanor::detail
