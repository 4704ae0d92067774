#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/formats/detail/sample_table.h"
#include "data/formats/table.h"

namespace athanor::detail {

/// A row of a table: a map from column to text (CSV), or any JSON value.
struct TableRow {
  SampleTable::Row row;
  std::string where;  ///< "line 7"
};

/// Which columns of a table are images and labels, and how their cells become samples.
class LabelColumns {
 public:
  /// `name`: prefix of messages; `table`: its file. By default, the image is "image", and the label is:
  /// "label" of classes; of several labels, "labels" or "label", else those that options.names names, else
  /// all other columns; of values likewise, but at last the only other column. Throws IoError if there are no
  /// such columns.
  LabelColumns(const std::vector<TableRow>& rows, const TableOptions& options, std::string name,
               const std::filesystem::path& table);

  /// The sample's fields: "image" with "label", or with "labels", a list of numbers; and "weight", if there
  /// is one. Throws IoError naming line and column.
  SampleTable::Row sample(const TableRow& row) const;
  /// The names of "labels"; empty without names, or with "label".
  const std::vector<std::string>& names() const { return names_; }
  /// The columns that are not used.
  std::vector<Unused> unused() const { return unused_; }

 private:
  using Row = SampleTable::Row;

  template <class... Args>
  [[noreturn]] void fail(const std::string& where, fmt::format_string<Args...> message, Args&&... args) const;
  void choose(const Row& first, const TableOptions& options);
  void find_images(const Row& first, const std::filesystem::path& table);
  void read_names(const std::vector<TableRow>& rows, const std::vector<std::string>& known);
  const Row& cell(const TableRow& row, const std::string& column, bool may_be_empty = false) const;
  double number(const Row& value, const std::string& column, const std::string& where) const;
  std::vector<std::string> names_in(const TableRow& row) const;

  std::string name_;
  LabelKind kind_;
  std::string image_;
  std::vector<std::string> labels_;  // columns
  std::vector<std::string> names_;
  bool listed_ = false;  // a cell has the names of all classes that the image has
  char separator_ = ',';
  std::filesystem::path images_;  // before each name of an image
  std::string suffix_;            // behind it
  std::vector<Unused> unused_;
};

}  // namespace athanor::detail
