#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "data/dataset.h"

namespace athanor::detail {

/// Samples with several fields, listed row by row: files, and numbers, which are held in memory.
class SampleTable final : public Dataset {
 public:
  /// A map from key, NAME or NAME:KIND, to the name of a file, a number, or a possibly nested list of
  /// numbers.
  using Row = nlohmann::ordered_json;
  /// Whether text labels that are all numbers count as numbers. (A CSV file has only text.)
  enum class LabelText : bool { names, names_or_numbers };

  /// `name`: prefix of messages. File names are relative to `folder`.
  SampleTable(std::string name, std::filesystem::path folder, LabelText text = LabelText::names)
      : name_(std::move(name)), folder_(std::move(folder)), label_text_(text) {}

  /// A number if the whole text is a finite one in range; else the text.
  static Row typed(const std::string& text);
  /// Throws IoError, "NAME, WHERE: ...", unless the row is an object with the same fields and shapes as
  /// earlier rows.
  void add_row(const Row& row, const std::string& where);
  /// Has the numbers of the field "labels" be f32, and each of them a class, or a value, of these names;
  /// empty: without names. (data/label_kind.h)
  void set_label_names(std::vector<std::string> names);
  /// After the last row. Throws IoError if there is none.
  void finish();

  std::int64_t size() const override { return rows_; }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<FieldSpec> fields() const override;
  std::vector<std::string> class_names() const override { return class_names_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  std::uint64_t sample_id(std::int64_t index) const override;
  std::optional<std::int64_t> image_bytes(std::int64_t index) const override;
  std::int64_t label(std::int64_t index) const override;
  std::vector<double> numbers(std::string_view field) const override;
  std::string where(std::int64_t index) const override;
  void set_unused(std::vector<Unused> unused) { unused_ = std::move(unused); }
  std::vector<Unused> unused() const override { return unused_; }

 private:
  struct Column {
    FieldSpec field;
    bool is_text = false;
    std::int64_t rows = 0;
    std::vector<std::string> texts;  // names of files, or of classes
    std::vector<double> numbers;
    Shape listed;                   // of each row
    bool whole = true;              // all are integers
    std::vector<std::byte> values;  // the numbers, as in batches

    bool is_label() const { return field.name == "label"; }
    bool is_file() const { return is_text && !is_label(); }
    const std::string& text(std::int64_t row) const { return texts[static_cast<std::size_t>(row)]; }
    /// A row's part of `values`.
    std::span<const std::byte> values_of(std::int64_t row) const {
      const auto bytes = static_cast<std::size_t>(field.bytes());
      return std::span(values).subspan(static_cast<std::size_t>(row) * bytes, bytes);
    }
  };

  template <class... Args>
  [[noreturn]] void fail(const std::string& where, fmt::format_string<Args...> message, Args&&... args) const;
  Column& column_of(const std::string& key, const Row& value, const std::string& where);
  Column declared(FieldSpec field, bool has_kind, const Row& value, const std::string& where) const;
  void add_text(Column& column, const Row& value, const std::string& where) const;
  void add_numbers(Column& column, const Row& value, const std::string& where) const;
  void set_shape(Column& column, const Shape& listed, const std::string& where) const;
  void check_image(const Row& first) const;
  void check_label(const Row& value, const std::string& where) const;
  void read_classes(Column& column);
  std::string line_of(std::int64_t index) const;

  std::string name_;
  std::filesystem::path folder_;
  LabelText label_text_;
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> lines_;  // of the rows in their file; 0: it has none
  std::vector<Column> columns_;
  std::vector<std::string> class_names_;
  bool has_labels_ = false;  // set_label_names()
  std::vector<Unused> unused_;
  ImageSpec spec_;
};

}  // namespace athanor::detail
