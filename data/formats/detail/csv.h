#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::detail {

/// Rows of comma-separated values (RFC 4180), whatever ends their lines: \n, \r\n or \r. A cell in quotes may
/// hold commas, ends of lines and, doubled, quotes; any other loses the blanks around it. Blank lines are
/// passed over.
class CsvReader {
 public:
  /// `name`: what messages begin with. The text must stay.
  CsvReader(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}

  /// The cells of the next row; false where there is none. Throws IoError, "NAME, line N: ...".
  bool next(std::vector<std::string>& cells);
  /// Where that row began, from 1 on.
  std::int64_t line() const { return first_line_; }

 private:
  bool take_cell(std::string& cell);
  void take_quoted(std::string& cell);
  void skip_blanks();
  [[noreturn]] void fail(std::int64_t line, const std::string& message) const;

  std::string_view text_;  // what is left of it
  std::string name_;
  std::int64_t line_ = 1, first_line_ = 1;
};

}  // namespace athanor::detail
