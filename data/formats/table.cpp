#include "data/formats/table.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>

#include <nlohmann/json.hpp>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/file_bytes.h"
#include "data/sample_row.h"
#include "tensor/error.h"
#include "tensor/regular_file.h"

namespace athanor {
namespace {

using Json = nlohmann::ordered_json;
using std::filesystem::path;

constexpr double kMostWhole = 9007199254740992.0;  // 2^53: whole numbers that a double holds

std::optional<Codec> codec_of(const path& file) {
  std::string end = file.extension().string();
  std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return std::tolower(c); });
  if (end == ".png") return Codec::png;
  if (end == ".jpg" || end == ".jpeg") return Codec::jpeg;
  return std::nullopt;
}

bool is_mask_name(std::string_view name) {
  return name == "mask" || name.ends_with("_mask");
}

/// A value for a message, whatever bytes it has.
std::string text_of(const Json& value) {
  return detail::printable(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

/// One field of all rows.
struct Column {
  std::string name;
  std::optional<FieldKind> kind;
  Shape shape;                     // of numbers
  std::vector<std::string> texts;  // file or class names
  std::vector<double> numbers;
  bool whole = true;
  FieldSpec field;
  std::vector<std::byte> values;  // of numbers, as batches hold them

  bool is_file() const { return name == "image" || (!texts.empty() && name != "label"); }
};

class Table final : public Dataset {
 public:
  Table(path at, path folder) : at_(std::move(at)), folder_(std::move(folder)) {}

  void add_row(const Json& row, const std::string& where);
  void finish();

  std::int64_t size() const override { return rows_; }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<FieldSpec> fields() const override {
    std::vector<FieldSpec> all;
    for (const Column& column : columns_) all.push_back(column.field);
    return all;
  }
  std::vector<std::string> class_names() const override { return class_names_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  std::string where(std::int64_t index) const override {
    return (folder_ / file_of(columns_[image_], index)).string();
  }

 private:
  template <class... Args> [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    std::string what = fmt::format(format, std::forward<Args>(args)...);
    for (char& c : what) c = static_cast<unsigned char>(c) < 0x20 ? '?' : c;  // names come from a file
    detail::fail<IoError>("table: {}, {}", at_.string(), what);
  }
  void add_value(Column& column, const Json& value, const std::string& where);
  void finish_column(Column& column);
  void read_classes(Column& column);
  static const std::string& file_of(const Column& column, std::int64_t index) {
    return column.texts[static_cast<std::size_t>(index)];
  }
  std::size_t append(const std::string& file, std::vector<std::byte>& to, std::size_t from) const;

  path at_, folder_;
  std::int64_t rows_ = 0;
  std::vector<Column> columns_;
  std::size_t image_ = SIZE_MAX, label_ = SIZE_MAX;
  std::vector<std::string> class_names_;
  ImageSpec spec_;
};

void Table::add_row(const Json& row, const std::string& where) {
  if (!row.is_object()) fail("{}: must be an object, but is {}", where, row.type_name());
  for (const auto& [key, value] : row.items()) {
    const std::size_t colon = key.find(':');
    const std::string name = key.substr(0, colon);
    const auto at = std::ranges::find(columns_, name, &Column::name);
    if (at == columns_.end()) {
      if (rows_ > 0) fail("{}: field '{}' is in no line before", where, name);
      Column column;
      column.name = name;
      if (colon != std::string::npos) {
        column.kind = field_kind_named(key.substr(colon + 1));
        if (!column.kind)
          fail("{}: the kind of '{}' must be values, picture, target, mask, boxes or points", where, key);
      }
      columns_.push_back(std::move(column));
      add_value(columns_.back(), value, where);
    } else {
      add_value(*at, value, where);
    }
  }
  ++rows_;
  for (const Column& column : columns_) {
    const auto numbers = static_cast<std::int64_t>(column.numbers.size());
    if (std::ssize(column.texts) != rows_ && numbers != rows_ * column.shape.numel())
      fail("{}: field '{}' is missing", where, column.name);
  }
}

void Table::add_value(Column& column, const Json& value, const std::string& where) {
  if (value.is_string() && column.numbers.empty()) {
    column.texts.push_back(value.get<std::string>());
    return;
  }
  Shape shape;
  const std::size_t before = column.numbers.size();
  const auto add = [&](const Json& number) {
    if (!number.is_number())
      fail("{}: field '{}' must be numbers, but has {}", where, column.name, text_of(number));
    const auto x = number.get<double>();
    column.whole = column.whole && number.is_number_integer() && std::abs(x) < kMostWhole;
    column.numbers.push_back(x);
  };
  if (value.is_array()) {
    shape.push_back(std::ssize(value));
    const bool nested = !value.empty() && value[0].is_array();
    if (nested) shape.push_back(std::ssize(value[0]));
    for (const Json& entry : value) {
      if (entry.is_array() != nested || (nested && std::ssize(entry) != shape[1]))
        fail("{}: field '{}' must have lists of one length", where, column.name);
      if (!nested) add(entry);
      for (std::size_t i = 0; nested && i < entry.size(); ++i) add(entry[i]);
    }
  } else {
    add(value);
  }
  if (rows_ == 0 && before == 0) column.shape = shape;
  if (shape != column.shape || !column.texts.empty() || (rows_ > 0 && before == 0))
    fail("{}: field '{}' must be as in the line before, numbers {}, but is {}", where, column.name,
         column.shape, text_of(value));
}

/// What the numbers of a column are, now that all are there.
void Table::finish_column(Column& column) {
  FieldSpec& field = column.field;
  field.name = column.name;
  if (column.is_file()) {
    const FieldKind by_name = is_mask_name(column.name) ? FieldKind::mask : FieldKind::target;
    field.kind = column.name == "image" ? FieldKind::picture : column.kind.value_or(by_name);
    field.shape = field.kind == FieldKind::mask ? Shape{0, 0} : Shape{0, 0, 0};
    for (std::size_t i = 0; i < column.texts.size(); ++i) {
      const std::string& file = column.texts[i];
      const bool plain = std::ranges::none_of(file, [](unsigned char c) { return c < 0x20; });
      if (!plain || !codec_of(file))
        fail("row {}: field '{}' must be a number, or a file that ends in .png, .jpg or .jpeg, but is '{}'",
             i + 1, column.name, detail::printable(file));
    }
    return;
  }
  field.kind = column.kind.value_or(FieldKind::values);
  field.shape = column.shape;
  const std::int64_t each = field.kind == FieldKind::boxes ? 4 : field.kind == FieldKind::points ? 2 : 0;
  if (each > 0 && field.shape.rank() < 2) field.shape = {field.shape.numel() / each, each};
  const bool whole = column.whole && each == 0;
  field.dtype = whole ? DType::i64 : DType::f32;
  for (const double number : column.numbers) {
    const auto add = [&](const auto& bytes) {
      column.values.insert(column.values.end(), bytes.begin(), bytes.end());
    };
    whole ? add(detail::stored(static_cast<std::int64_t>(number), std::endian::native))
          : add(detail::stored(static_cast<float>(number), std::endian::native));
  }
  column.numbers = {};
}

/// Labels are their own numbers, or those of class names in byte order.
void Table::read_classes(Column& column) {
  std::map<std::string, double> classes;
  for (const std::string& name : column.texts) classes[name] = 0;
  for (auto& [name, number] : classes) {
    number = static_cast<double>(class_names_.size());
    class_names_.push_back(name);
  }
  for (const std::string& name : column.texts) column.numbers.push_back(classes[name]);
  column.texts = {};
  double most = 0;
  for (const double number : column.numbers) {
    if (number < 0 || !column.whole || column.shape.rank() > 0 || number >= 0x1p31)
      fail("field 'label' must be whole numbers from 0 on, or names of classes, but has {}", number);
    most = std::max(most, number);
  }
  spec_.classes = static_cast<std::int64_t>(most) + 1;
}

void Table::finish() {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].name == "image") image_ = i;
    if (columns_[i].name == "label") read_classes(columns_[label_ = i]);
    finish_column(columns_[i]);
  }
  if (image_ == SIZE_MAX || rows_ == 0) fail("there must be a row and a column 'image', but there is none");
}

/// Appends a file behind `from` bytes; returns where it ends.
std::size_t Table::append(const std::string& file, std::vector<std::byte>& to, std::size_t from) const {
  constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 30;
  const path at = folder_ / file;
  const RegularFile open(at);
  if (!open.problem().empty()) detail::fail<IoError>("table: {} {}", at.string(), open.problem());
  if (open.bytes() > kMaxFileBytes)
    detail::fail<IoError>("table: {} must have at most 1 GiB, but has {} bytes", at.string(), open.bytes());
  const auto bytes = static_cast<std::size_t>(open.bytes());
  if (to.size() < from + bytes) to.resize(from + bytes);
  if (open.read_at(0, std::span(to).subspan(from, bytes)) != bytes)
    detail::fail<IoError>("table: {} must be readable to its end, but is not", at.string());
  return from + bytes;
}

/// In `scratch`: StoredSample::more, and behind it the files.
StoredSample Table::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  ATH_CHECK(index >= 0 && index < rows_, "table: index must be in [0, {}), but got {}", rows_, index);
  std::vector<std::size_t> ends;  // of the files
  std::size_t end = columns_.size() * sizeof(StoredField);
  scratch.resize(std::max(scratch.size(), end));
  for (const Column& column : columns_) {
    const std::size_t from = end;
    if (column.is_file()) end = append(file_of(column, index), scratch, end);
    ends.push_back(from);
  }
  ends.push_back(end);
  auto* const more = reinterpret_cast<StoredField*>(scratch.data());
  std::size_t count = 0;
  StoredSample sample;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    const auto size = static_cast<std::size_t>(column.is_file() ? 0 : column.field.bytes());
    StoredField field{
        std::span<const std::byte>(column.values).subspan(static_cast<std::size_t>(index) * size, size)};
    if (column.is_file()) {
      field.bytes = std::span(scratch).subspan(ends[i], ends[i + 1] - ends[i]);
      field.codec = *codec_of(file_of(column, index));
    }
    if (i == image_) {
      sample.bytes = field.bytes;
      sample.codec = field.codec;
    } else if (i == label_) {
      std::memcpy(&sample.label, field.bytes.data(), sizeof(sample.label));
    } else {
      new (more + count++) StoredField(field);
    }
  }
  sample.more = {more, count};
  return sample;
}

// ----------------------------------------------------------------------------------------------------------

/// The next record of CSV, in which quotes keep commas and ends of lines together.
std::vector<std::string> next_record(std::string_view& text, std::int64_t& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (; !text.empty(); text.remove_prefix(1)) {
    const char c = text[0];
    line += c == '\n' ? 1 : 0;
    if (c == '"') {
      const bool twice = quoted && text.size() > 1 && text[1] == '"';
      if (twice) {
        cells.back() += '"';
        text.remove_prefix(1);
      } else {
        quoted = !quoted;
      }
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c == '\n' && !quoted) {
      text.remove_prefix(1);
      break;
    } else if (c != '\r' || quoted) {
      cells.back() += c;
    }
  }
  return cells;
}

Json value_of(const std::string& cell) {
  std::int64_t whole = 0;
  double number = 0;
  const char *begin = cell.data(), *end = begin + cell.size();
  if (const auto [at, error] = std::from_chars(begin, end, whole); at == end && error == std::errc())
    return whole;
  if (const auto [at, error] = std::from_chars(begin, end, number); at == end && error == std::errc())
    return number;
  return cell;
}

void read_csv(std::string_view text, Table& table, const path& at) {
  std::int64_t line = 0;
  const std::vector<std::string> names = next_record(text, line);
  // NAME.0:KIND, NAME.1, ... are one key, NAME:KIND.
  std::vector<std::string> keys = names;
  std::vector<bool> listed(names.size());
  std::map<std::string, std::string> of_lists;
  std::map<std::string, bool> seen;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t dot = names[i].find('.'), colon = std::min(names[i].find(':'), names[i].size());
    listed[i] = dot < colon;
    if (listed[i]) {
      const std::string name = names[i].substr(0, dot);
      keys[i] = of_lists.try_emplace(name, name + names[i].substr(colon)).first->second;
    }
    const auto [same, is_new] = seen.try_emplace(keys[i], listed[i]);
    if (keys[i].empty() || (!is_new && !(same->second && listed[i])))
      detail::fail<IoError>("table: {}, line 1: each column must have a name of its own, but got '{}'",
                            at.string(), detail::printable(names[i]));
  }
  while (!text.empty()) {
    const std::string where = fmt::format("line {}", line + 1);
    const std::vector<std::string> cells = next_record(text, line);
    if (cells.size() == 1 && cells[0].empty()) continue;
    if (cells.size() != names.size())
      detail::fail<IoError>("table: {}, {}: must have {} columns like the first, but has {}", at.string(),
                            where, names.size(), cells.size());
    Json row;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (cells[i].empty()) continue;  // and so missing
      if (listed[i]) row[keys[i]].push_back(value_of(cells[i]));
      if (!listed[i]) row[keys[i]] = value_of(cells[i]);
    }
    table.add_row(row, where);
  }
}

void read_json_lines(std::string_view text, Table& table, const path& at) {
  for (std::int64_t line = 1; !text.empty(); ++line) {
    const std::string_view one = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    if (one.find_first_not_of(" \r\t") == std::string_view::npos) continue;
    const Json row = Json::parse(one, nullptr, false);
    if (row.is_discarded())
      detail::fail<IoError>("table: {}, line {}: must be JSON, but is not", at.string(), line);
    table.add_row(row, fmt::format("line {}", line));
  }
}

}  // namespace

std::unique_ptr<Dataset> open_table(const path& at) {
  const detail::FileBytes file(at, "table", "mend it");
  auto table = std::make_unique<Table>(at, at.parent_path());
  const std::string_view text = detail::text_of(file.bytes());
  at.extension() == ".csv" ? read_csv(text, *table, at) : read_json_lines(text, *table, at);
  table->finish();
  return table;
}

bool is_folder_pairs(const path& folder) {
  std::error_code error;
  const auto has = [&](const char* name) { return std::filesystem::is_directory(folder / name, error); };
  return has("images") && (has("masks") || has("targets"));
}

std::unique_ptr<Dataset> open_folder_pairs(const path& folder) {
  // Of each folder, its files by their stems.
  std::map<std::string, std::map<std::string, std::string>> folders;
  std::error_code error;
  for (const auto& part : std::filesystem::directory_iterator(folder, error)) {
    if (!part.is_directory()) continue;
    const std::string name = part.path().filename().string();
    for (const auto& file : std::filesystem::directory_iterator(part.path(), error)) {
      const path& at = file.path();
      if (codec_of(at)) folders[name][at.stem().string()] = name / at.filename();
    }
  }
  auto table = std::make_unique<Table>(folder, folder);
  for (const auto& [stem, image] : folders["images"]) {
    Json row{{"image", image}};
    for (const auto& [name, files] : folders) {
      if (name == "images") continue;
      const auto partner = files.find(stem);
      if (partner == files.end())
        detail::fail<IoError>("table: {}: {} must have a file of the same name in {}/, but has none",
                              folder.string(), image, name);
      row[name.ends_with('s') ? name.substr(0, name.size() - 1) : name] = partner->second;
    }
    table->add_row(row, image);
  }
  table->finish();
  return table;
}

}  // namespace athanor
