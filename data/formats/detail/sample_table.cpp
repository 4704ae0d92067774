#include "data/formats/detail/sample_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <new>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "data/detail/sample_id.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/detail/image_files.h"
#include "data/formats/detail/indexed_store.h"
#include "data/label_kind.h"
#include "data/sample_row.h"
#include "tensor/base/error.h"

namespace athanor::detail {
namespace {

using Row = SampleTable::Row;

constexpr double kMaxWhole = 0x1p53;  // largest range of integers that a double represents exactly
constexpr double kMaxFloat = std::numeric_limits<float>::max();

/// The kinds allowed for a field of that name and form; the first is the default.
std::vector<FieldKind> kinds_of(const std::string& name, bool is_text) {
  if (name == "image") return {FieldKind::picture};
  if (name == "label") return {FieldKind::values};
  if (!is_text) return {FieldKind::values, FieldKind::boxes, FieldKind::points};
  const bool mask = name == "mask" || name.ends_with("_mask");
  if (mask) return {FieldKind::mask, FieldKind::target, FieldKind::picture};
  return {FieldKind::target, FieldKind::mask, FieldKind::picture};
}

/// The shape of a number, of a list of them, or of a list of lists.
std::optional<Shape> shape_of(const Row& value) {
  Shape shape;
  if (!value.is_array()) return shape;
  shape.push_back(std::ssize(value));
  const bool nested = !value.empty() && value[0].is_array();
  if (nested) shape.push_back(std::ssize(value[0]));
  for (const Row& entry : value) {
    if (entry.is_array() != nested || (nested && std::ssize(entry) != shape[1])) return std::nullopt;
  }
  return shape;
}

/// 7 of "line 7", else 0.
std::int64_t line_in(const std::string& where) {
  constexpr std::string_view kLine = "line ";
  std::int64_t line = 0;
  if (where.starts_with(kLine))
    std::from_chars(where.data() + kLine.size(), where.data() + where.size(), line);
  return line;
}

}  // namespace

Row SampleTable::typed(const std::string& text) {
  const char *const begin = text.data(), *const end = begin + text.size();
  std::int64_t whole = 0;
  const auto [after_whole, no_whole] = std::from_chars(begin, end, whole);
  if (after_whole == end && no_whole == std::errc()) return whole;
  double number = 0;
  const auto [after, no_number] = std::from_chars(begin, end, number);
  const bool fits = no_number == std::errc() && no_whole != std::errc::result_out_of_range;
  if (after == end && fits && std::isfinite(number)) return number;
  return text;
}

template <class... Args>
void SampleTable::fail(const std::string& where, fmt::format_string<Args...> message, Args&&... args) const {
  detail::fail<IoError>("{}{}{}: {}", name_, where.empty() ? "" : ", ", where,
                        fmt::format(message, std::forward<Args>(args)...));
}

void SampleTable::add_row(const Row& row, const std::string& where) {
  if (!row.is_object()) fail(where, "must be an object, but is {}", row.type_name());
  if (rows_ == 0) check_image(row);
  for (const auto& [key, value] : row.items()) {
    Column& column = column_of(key, value, where);
    if (column.rows > rows_) fail(where, "field '{}' appears twice", column.field.name);
    column.is_text ? add_text(column, value, where) : add_numbers(column, value, where);
    ++column.rows;
  }
  for (const Column& column : columns_) {
    if (column.rows == rows_) fail(where, "field '{}' is missing", column.field.name);
  }
  lines_.push_back(line_in(where));
  ++rows_;
}

void SampleTable::check_image(const Row& first) const {
  std::vector<std::string> names;
  for (const auto& [key, value] : first.items()) {
    names.push_back(printable(key.substr(0, key.find(':'))));
    if (names.back() == "image") return;
  }
  fail("", "the first row must have a field 'image', but has '{}'", fmt::join(names, "', '"));
}

SampleTable::Column& SampleTable::column_of(const std::string& key, const Row& value,
                                            const std::string& where) {
  const std::size_t colon = key.find(':');
  FieldSpec field{.name = key.substr(0, colon)};
  const bool has_kind = colon != std::string::npos;
  if (has_kind) {
    const std::optional<FieldKind> kind = field_kind_named(key.substr(colon + 1));
    if (!kind)
      fail(where, "the kind of '{}' must be values, picture, target, mask, boxes or points", printable(key));
    field.kind = *kind;
  }
  const auto name = [](const Column& column) -> const std::string& { return column.field.name; };
  const auto at = std::ranges::find(columns_, field.name, name);
  if (at == columns_.end()) {
    if (rows_ > 0) fail(where, "field '{}' does not appear in the previous lines", printable(field.name));
    columns_.push_back(declared(std::move(field), has_kind, value, where));
    return columns_.back();
  }
  if (has_kind && field.kind != at->field.kind)
    fail(where, "field '{}' must be {}, as in the previous line, but is declared as {}", field.name,
         athanor::name_of(at->field.kind), athanor::name_of(field.kind));
  return *at;
}

/// The column of a field in the first row.
SampleTable::Column SampleTable::declared(FieldSpec field, bool has_kind, const Row& value,
                                          const std::string& where) const {
  const std::string& name = field.name;
  if (name.empty()) fail(where, "every field must have a name, but one has none");
  if (athanor::printable(name) != name)
    fail(where, "a field name must be UTF-8 without control characters, but is '{}'", printable(name));
  const bool is_text = name == "image" || value.is_string();
  const std::vector<FieldKind> kinds = kinds_of(name, is_text);
  if (!has_kind) field.kind = kinds.front();
  if (std::ranges::find(kinds, field.kind) == kinds.end()) {
    std::vector<const char*> names(kinds.size());
    std::ranges::transform(kinds, names.begin(), [](FieldKind kind) { return athanor::name_of(kind); });
    fail(where, "field '{}' must be {}, but is declared as {}", name, fmt::join(names, " or "),
         athanor::name_of(field.kind));
  }
  Column column;
  column.field = std::move(field);
  column.is_text = is_text;
  if (column.is_file())
    column.field.shape = column.field.kind == FieldKind::mask ? Shape{0, 0} : Shape{0, 0, 0};
  return column;
}

void SampleTable::add_text(Column& column, const Row& value, const std::string& where) const {
  const std::string& name = column.field.name;
  if (!value.is_string())
    fail(where, "field '{}' must be {}, but is {}", name,
         column.is_label() ? "a class name, as in the previous line" : "the name of a file", shown(value));
  const auto text = value.get<std::string>();
  if (column.is_label()) {
    if (text.empty()) fail(where, "field '{}' is missing", name);
    const Row number = label_text_ == LabelText::names_or_numbers ? typed(text) : value;
    if (number.is_number()) check_label(number, where);
  } else {
    if (std::ranges::any_of(text, [](unsigned char c) { return c < 0x20; }))
      fail(where, "a file name must not contain control characters, but is '{}'", printable(text));
    if (!codec_named(text))
      fail(where, "field '{}' must be {}a file that ends in .png, .webp, .jpg or .jpeg, but is '{}'", name,
           name == "image" ? "" : "a number or ", printable(text));
  }
  column.texts.push_back(text);
}

void SampleTable::check_label(const Row& value, const std::string& where) const {
  const double label = value.is_number() ? value.get<double>() : -1;
  if (label >= 0 && label < static_cast<double>(kMaxClasses) && label == std::floor(label)) return;
  fail(where, "field 'label' must be a whole number >= 0 or a class name, but is {}", shown(value));
}

void SampleTable::add_numbers(Column& column, const Row& value, const std::string& where) const {
  const std::string& name = column.field.name;
  if (column.is_label() && value.is_string())
    fail(where, "field 'label' must be a number, as in the previous line, but is {}", shown(value));
  if (column.is_label()) check_label(value, where);
  const std::optional<Shape> shape = shape_of(value);
  if (!shape) fail(where, "field '{}' must have lists of equal length", name);
  if (shape->numel() == 0) fail(where, "field '{}' must have at least one number, but has none", name);
  if (column.rows == 0) set_shape(column, *shape, where);
  if (*shape != column.listed)
    fail(where, "field '{}' must have numbers of shape {}, as in the previous line, but has {}", name,
         column.listed, *shape);
  const auto add = [&](const Row& number) {
    if (!number.is_number())
      fail(where, "field '{}' must contain numbers only, but has {}", name, shown(number));
    const auto x = number.get<double>();
    const bool whole = number.is_number_integer();
    if (whole ? std::abs(x) >= kMaxWhole : std::abs(x) > kMaxFloat)
      fail(where, "field '{}' must contain integers below 2^53 or f32 numbers, but has {}", name,
           shown(number));
    column.whole = column.whole && whole;
    column.numbers.push_back(x);
  };
  if (!value.is_array()) return add(value);
  for (const Row& entry : value) {
    if (entry.is_array()) {
      std::ranges::for_each(entry, add);
    } else {
      add(entry);
    }
  }
}

/// The shape of a field, from the lists of the first row: boxes and points may be flat lists.
void SampleTable::set_shape(Column& column, const Shape& listed, const std::string& where) const {
  FieldSpec& field = column.field;
  column.listed = field.shape = listed;
  const std::int64_t each = field.kind == FieldKind::boxes ? 4 : field.kind == FieldKind::points ? 2 : 0;
  if (each == 0) return;
  column.whole = false;
  const bool fits = listed.rank() == 2 ? listed[1] == each : listed.rank() == 1 && listed[0] % each == 0;
  if (!fits)
    fail(where, "field '{}' must be {} of {} numbers each, but has {}", field.name,
         athanor::name_of(field.kind), each, listed);
  field.shape = {listed.numel() / each, each};
}

void SampleTable::set_label_names(std::vector<std::string> names) {
  class_names_ = std::move(names);
  has_labels_ = true;
}

void SampleTable::finish() {
  if (rows_ == 0) fail("", "the table must have at least one sample, but has none");
  for (Column& column : columns_) {
    if (column.is_label()) read_classes(column);
    if (column.is_text) continue;
    if (has_labels_ && column.field.name == kLabelsField) {
      column.whole = false;
      spec_.classes = column.field.shape.numel();
      if (std::ssize(class_names_) != spec_.classes) class_names_.clear();  // a column may hold a list
    }
    column.field.dtype = column.whole ? DType::i64 : DType::f32;
    ByteWriter values;
    values.bytes.reserve(column.numbers.size() * size_of(column.field.dtype));
    for (const double x : column.numbers) {
      column.whole ? values.add(stored(static_cast<std::int64_t>(x), std::endian::native))
                   : values.add(stored(static_cast<float>(x), std::endian::native));
    }
    column.values = std::move(values.bytes);
    column.numbers = {};
  }
}

/// Converts classes to numbers: as given, or by the byte order of their names.
void SampleTable::read_classes(Column& column) {
  const auto is_number = [](const std::string& text) { return typed(text).is_number(); };
  if (label_text_ == LabelText::names_or_numbers && std::ranges::all_of(column.texts, is_number)) {
    for (const std::string& text : column.texts) column.numbers.push_back(typed(text).get<double>());
  } else if (column.is_text) {
    std::map<std::string, double> classes;
    for (const std::string& name : column.texts) classes[name] = 0;
    for (auto& [name, number] : classes) {
      number = static_cast<double>(class_names_.size());
      class_names_.push_back(name);
    }
    for (const std::string& name : column.texts) column.numbers.push_back(classes[name]);
  }
  column.texts = {};
  column.is_text = false;
  column.whole = true;
  spec_.classes = static_cast<std::int64_t>(std::ranges::max(column.numbers)) + 1;
}

/// " (train.csv, line 7)"; empty without lines.
std::string SampleTable::line_of(std::int64_t index) const {
  const std::int64_t line = lines_[static_cast<std::size_t>(index)];
  if (line == 0) return {};
  return fmt::format(" ({}, line {})", name_.substr(name_.find(": ") + 2), line);
}

std::vector<FieldSpec> SampleTable::fields() const {
  std::vector<FieldSpec> all;
  for (const Column& column : columns_) all.push_back(column.field);
  return all;
}

std::string SampleTable::where(std::int64_t index) const {
  check_index(index, rows_, "table");
  for (const Column& column : columns_) {
    if (column.field.name == "image") return (folder_ / column.text(index)).string();
  }
  return {};
}

std::int64_t SampleTable::label(std::int64_t index) const {
  check_index(index, rows_, "table");
  for (const Column& column : columns_) {
    if (column.is_label()) return load<std::int64_t>(column.values_of(index), std::endian::native);
  }
  return 0;
}

std::vector<double> SampleTable::numbers(std::string_view field) const {
  for (const Column& column : columns_) {
    if (column.field.name != field || column.is_label() || column.field.kind != FieldKind::values) continue;
    std::vector<double> all;
    const std::span<const std::byte> values = column.values;
    for (std::size_t at = 0; at < values.size(); at += size_of(column.field.dtype)) {
      all.push_back(column.whole
                        ? static_cast<double>(load<std::int64_t>(values.subspan(at), std::endian::native))
                        : double{load<float>(values.subspan(at), std::endian::native)});
    }
    return all;
  }
  return Dataset::numbers(field);  // names the error
}

std::optional<std::int64_t> SampleTable::image_bytes(std::int64_t index) const {
  return RegularFile(where(index)).bytes();
}

std::uint64_t SampleTable::sample_id(std::int64_t index) const {
  check_index(index, rows_, "table");
  kernels::HashOf hash;
  for (const Column& column : columns_) {
    if (column.is_text) {
      const std::string& name = column.text(index);
      hash.add(kernels::fnv1a(name), file_id(folder_ / name, RegularFile::kWorkingFolder, rows_));
    } else {
      hash.add(crc32c(column.values_of(index)));
    }
  }
  return hash.value();
}

/// In `scratch`: the array for StoredSample::more, then the files.
StoredSample SampleTable::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  check_index(index, rows_, "table");
  std::vector<std::size_t> ends{columns_.size() * sizeof(StoredField)};  // of the files
  scratch.resize(std::max(scratch.size(), ends.back()));
  for (const Column& column : columns_) {
    std::size_t end = ends.back();
    if (column.is_text) {
      const std::filesystem::path file = folder_ / column.text(index);
      end = append_file(RegularFile(file), scratch, end, "table",
                        [&] { return file.string() + line_of(index); });
    }
    ends.push_back(end);
  }
  auto* const more = reinterpret_cast<StoredField*>(scratch.data());
  std::size_t count = 0;
  StoredSample sample;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    StoredField field;
    if (column.is_text) {
      field = {std::span(scratch).subspan(ends[i], ends[i + 1] - ends[i]), *codec_named(column.text(index))};
    } else {
      field.bytes = column.values_of(index);
    }
    if (column.is_label()) {
      sample.label = load<std::int64_t>(field.bytes, std::endian::native);
    } else if (column.field.name == "image") {
      sample.bytes = field.bytes;
      sample.codec = field.codec;
    } else {
      new (more + count++) StoredField(field);
    }
  }
  sample.more = {more, count};
  return sample;
}

}  // namespace athanor::detail
