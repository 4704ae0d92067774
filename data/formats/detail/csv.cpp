#include "data/formats/detail/csv.h"

#include <algorithm>

#include "data/formats/detail/bytes.h"
#include "tensor/base/error.h"

namespace athanor::detail {
namespace {

constexpr std::string_view kBlanks = " \t", kEnds = ",\r\n";

}  // namespace

bool CsvReader::next(std::vector<std::string>& cells) {
  do {
    if (text_.empty()) return false;
    first_line_ = line_;
    cells.clear();
    while (take_cell(cells.emplace_back())) {
    }
  } while (cells.size() == 1 && cells[0].empty());
  return true;
}

/// Takes a cell and its separator. Returns whether another cell of the same row follows.
bool CsvReader::take_cell(std::string& cell) {
  skip_blanks();
  if (text_.starts_with('"')) {
    take_quoted(cell);
  } else {
    cell = text_.substr(0, text_.find_first_of(kEnds));
    text_.remove_prefix(cell.size());
    cell.resize(cell.find_last_not_of(kBlanks) + 1);
  }
  if (text_.empty()) return false;
  const bool more = text_[0] == ',';
  line_ += more ? 0 : 1;
  text_.remove_prefix(text_.starts_with("\r\n") ? 2 : 1);
  return more;
}

void CsvReader::take_quoted(std::string& cell) {
  const std::int64_t began = line_;
  do {
    text_.remove_prefix(1);  // the quote; a doubled one is a literal quote
    const std::size_t quote = text_.find('"');
    if (quote == std::string_view::npos)
      fail(began, "a quoted cell must end with a quote, but the file ends");
    const std::string_view part = text_.substr(0, quote);
    line_ += std::count(part.begin(), part.end(), '\n');
    text_.remove_prefix(quote + 1);
    cell += part;
    if (text_.starts_with('"')) cell += '"';
  } while (text_.starts_with('"'));
  skip_blanks();
  if (text_.empty() || kEnds.find(text_[0]) != std::string_view::npos) return;
  fail(line_,
       fmt::format("a comma must follow a quoted cell, but '{}' follows; double the quotes inside a cell",
                   printable(text_.substr(0, 1))));
}

void CsvReader::skip_blanks() {
  text_.remove_prefix(std::min(text_.find_first_not_of(kBlanks), text_.size()));
}

void CsvReader::fail(std::int64_t line, const std::string& message) const {
  detail::fail<IoError>("{}, line {}: {}", name_, line, message);
}

}  // namespace athanor::detail
