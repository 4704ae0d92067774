#include "data/formats/table.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/csv.h"
#include "data/formats/detail/file_bytes.h"
#include "data/formats/detail/label_columns.h"
#include "data/formats/detail/sample_table.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

using detail::SampleTable;
using Row = SampleTable::Row;

/// A CSV column: its field's key, and whether it is one element of a list.
struct Heading {
  std::string key;
  bool in_list = false;
};

/// NAME.0:KIND, NAME.1, ... are one field, NAME:KIND.
std::vector<Heading> read_headings(const std::vector<std::string>& columns, const std::string& where) {
  struct Field {
    Heading heading;
    std::size_t columns = 0;
  };
  std::map<std::string, Field> fields;
  std::vector<Heading> all;
  for (const std::string& column : columns) {
    std::string name = column.substr(0, column.find(':'));
    const std::string kind = column.substr(name.size());
    const std::size_t dot = name.rfind('.') + 1;
    const bool in_list =
        dot > 0 && dot < name.size() && name.find_first_not_of("0123456789", dot) == name.npos;
    const std::string number = name.substr(dot);
    if (in_list) name.resize(dot - 1);
    const auto [at, is_new] = fields.try_emplace(name, Field{{name + kind, in_list}});
    Field& field = at->second;
    const std::string shown = detail::printable(name);
    if (!is_new && !(in_list && field.heading.in_list))
      detail::fail<IoError>("{}: column '{}' appears twice", where, shown);
    if (in_list && number != std::to_string(field.columns))
      detail::fail<IoError>(
          "{}: the columns of '{}' must be {}.0, {}.1, ... in order, but {}.{} comes instead of number {}",
          where, shown, shown, shown, shown, number, field.columns);
    if (!is_new && !kind.empty() && name + kind != field.heading.key)
      detail::fail<IoError>("{}: the columns of '{}' must have one kind, but '{}' has another", where, shown,
                            detail::printable(column));
    ++field.columns;
    all.push_back(field.heading);
  }
  return all;
}

/// Calls take(cells, "line 7") with the cells of each row, after names(cells, "line 1") with those of the
/// first.
template <class Names, class Take>
void for_each_row(std::string_view text, const std::string& name, const Names& names, const Take& take) {
  detail::CsvReader csv(text, name);
  std::vector<std::string> columns, cells;
  if (!csv.next(columns))
    detail::fail<IoError>("{}, line 1: the file must start with a row of names, but is empty", name);
  names(columns, fmt::format("{}, line {}", name, csv.line()));
  while (csv.next(cells)) {
    const std::string where = fmt::format("line {}", csv.line());
    if (cells.size() != columns.size())
      detail::fail<IoError>("{}, {}: must have {} columns, like line 1, but has {}", name, where,
                            columns.size(), cells.size());
    take(columns, cells, where);
  }
}

void read_csv(std::string_view text, SampleTable& table, const std::string& name) {
  using Cells = std::vector<std::string>;
  std::vector<Heading> headings;
  const auto names = [&](const Cells& columns, const std::string& where) {
    headings = read_headings(columns, where);
  };
  for_each_row(text, name, names, [&](const Cells& columns, const Cells& cells, const std::string& where) {
    Row row = Row::object();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const auto& [key, in_list] = headings[i];
      if (cells[i].empty())
        detail::fail<IoError>("{}, {}: field '{}' is missing", name, where, detail::printable(columns[i]));
      // Whether classes are numbers is known only after all rows.
      Row value = key.substr(0, key.find(':')) == "label" ? Row(cells[i]) : SampleTable::typed(cells[i]);
      in_list ? row[key].push_back(std::move(value)) : void(row[key] = std::move(value));
    }
    table.add_row(row, where);
  });
}

/// Whether a part of a line is kept: what is nested deeper is in no field, and a copy would go as deep.
bool is_flat(int depth, Row::parse_event_t /*event*/, Row& /*parsed*/) {
  return depth < 64;
}

/// Calls take(row, "line 7") with the object of each line.
template <class Take> void for_each_line(std::string_view text, const std::string& name, const Take& take) {
  for (std::int64_t line = 1; !text.empty(); ++line) {
    const std::string_view one = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    if (one.find_first_not_of(" \r\t") == std::string_view::npos) continue;
    Row row = Row::parse(one, is_flat, false);
    if (row.is_discarded())
      detail::fail<IoError>("{}, line {}: must be one JSON object in UTF-8, but is not", name, line);
    take(std::move(row), fmt::format("line {}", line));
  }
}

/// All rows with all their columns, those of CSV as text.
std::vector<detail::TableRow> all_rows(std::string_view text, const std::string& name, bool is_csv) {
  using Cells = std::vector<std::string>;
  std::vector<detail::TableRow> rows;
  if (!is_csv) {
    for_each_line(text, name, [&](Row row, const std::string& where) {
      rows.push_back({std::move(row), where});
    });
    return rows;
  }
  const auto names = [](const Cells& columns, const std::string& where) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (std::find(columns.begin(), columns.begin() + static_cast<std::ptrdiff_t>(i), columns[i]) !=
          columns.begin() + static_cast<std::ptrdiff_t>(i))
        detail::fail<IoError>("{}: column '{}' appears twice", where, detail::printable(columns[i]));
    }
  };
  for_each_row(text, name, names, [&](const Cells& columns, const Cells& cells, const std::string& where) {
    Row row = Row::object();
    for (std::size_t i = 0; i < cells.size(); ++i) row[columns[i]] = cells[i];
    rows.push_back({std::move(row), where});
  });
  return rows;
}

/// Calls read(text, table, prefix of messages, whether it is CSV).
template <class Read> std::unique_ptr<Dataset> read_table(const std::filesystem::path& at, const Read& read) {
  const detail::FileBytes file(at, "table", "correct it");
  const std::string name = fmt::format("table: {}", at.string());
  const bool is_csv = detail::lower_case(at.extension().string()) == ".csv";
  auto table = std::make_unique<SampleTable>(
      name, at.parent_path(),
      is_csv ? SampleTable::LabelText::names_or_numbers : SampleTable::LabelText::names);
  const std::vector<std::byte> bytes = file.all();
  std::string_view text = detail::text_of(bytes);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // the byte order mark of UTF-8
  read(text, *table, name, is_csv);
  table->finish();
  return table;
}

}  // namespace

std::unique_ptr<Dataset> open_table(const std::filesystem::path& at) {
  return read_table(at, [](std::string_view text, SampleTable& table, const std::string& name, bool is_csv) {
    if (is_csv) return read_csv(text, table, name);
    for_each_line(text, name, [&](const Row& row, const std::string& where) { table.add_row(row, where); });
  });
}

std::unique_ptr<Dataset> open_table(const std::filesystem::path& at, const TableOptions& options) {
  return read_table(at, [&](std::string_view text, SampleTable& table, const std::string& name, bool is_csv) {
    const std::vector<detail::TableRow> rows = all_rows(text, name, is_csv);
    const detail::LabelColumns columns(rows, options, name, at);
    for (const detail::TableRow& row : rows) table.add_row(columns.sample(row), row.where);
    if (options.labels != LabelKind::classes) table.set_label_names(columns.names());
    table.set_unused(columns.unused());
  });
}

std::vector<std::filesystem::path> tables_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string suffix = detail::lower_case(entry.path().extension().string());
    if ((suffix != ".csv" && suffix != ".jsonl") || entry.path().filename().string().starts_with("."))
      continue;
    found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace athanor
