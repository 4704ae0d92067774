#include "data/formats/detail/label_columns.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/image_files.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor::detail {
namespace {

constexpr char kWeight[] = "weight";

/// A cell's text, or that of a number in JSON.
std::string cell_text(const SampleTable::Row& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_structured() ? value.type_name() : value.dump();
}

std::optional<double> number_in(const SampleTable::Row& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_string()) {
    const SampleTable::Row typed = SampleTable::typed(value.get<std::string>());
    return typed.is_number() ? std::optional(typed.get<double>()) : std::nullopt;
  }
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

/// "a,b" as its parts, without blanks around them; empty ones are left out.
std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(separator));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    if (const std::string_view bare = trimmed(part); !bare.empty()) parts.emplace_back(bare);
  }
  return parts;
}

}  // namespace

template <class... Args>
void LabelColumns::fail(const std::string& where, fmt::format_string<Args...> message, Args&&... args) const {
  detail::fail<IoError>("{}{}{}: {}", name_, where.empty() ? "" : ", ", where,
                        fmt::format(message, std::forward<Args>(args)...));
}

LabelColumns::LabelColumns(const std::vector<TableRow>& rows, const TableOptions& options, std::string name,
                           const std::filesystem::path& table)
    : name_(std::move(name)), kind_(options.labels) {
  if (rows.empty()) fail("", "the table must have at least one sample, but has none");
  const TableRow& first = rows.front();
  if (!first.row.is_object()) fail(first.where, "must be an object, but is {}", first.row.type_name());
  choose(first.row, options);
  find_images(first.row, table);
  if (kind_ != LabelKind::classes) read_names(rows, options.names);
}

void LabelColumns::choose(const Row& first, const TableOptions& options) {
  const FieldNames& fields = options.fields;
  std::vector<std::string> others;
  for (const auto& [column, value] : first.items()) others.push_back(column);
  const std::vector<std::string> all = others;
  const auto has = [&](const std::string& column) { return std::ranges::find(all, column) != all.end(); };
  const auto take = [&](const std::string& column, const char* what) {
    if (!has(column))
      fail("", "there must be a column '{}' ({}), but there are '{}'; name it with --fields {}=NAME",
           printable(column), what, printable(fmt::format("{}", fmt::join(all, "', '"))), what);
    std::erase(others, column);
    return column;
  };
  image_ = take(fields.image.empty() ? "image" : fields.image, "image");
  if (has(kWeight)) std::erase(others, kWeight);
  if (!fields.label.empty()) {
    for (const std::string& column : parts_of(fields.label, ',')) labels_.push_back(take(column, "label"));
  } else if (kind_ != LabelKind::classes && has(kLabelsField)) {
    labels_ = {take(kLabelsField, "label")};
  } else if (kind_ == LabelKind::classes || has("label")) {
    labels_ = {take("label", "label")};
  } else if (!options.names.empty()) {
    for (const std::string& column : options.names) {
      if (!has(column))
        fail("",
             "there must be a column '{}', as in the other tables, but there are '{}'; add it, or name the "
             "labels that all have with --fields label=NAME,...",
             printable(column), printable(fmt::format("{}", fmt::join(all, "', '"))));
      labels_.push_back(take(column, "label"));
    }
  } else if (kind_ == LabelKind::multilabel || others.size() == 1) {
    labels_ = std::exchange(others, {});
  }
  if (labels_.empty()) {
    std::vector<std::string> numbers;
    for (const std::string& column : all)
      if (column != image_ && number_in(first.at(column))) numbers.push_back(column);
    if (numbers.size() > 1)
      fail("", "there are {} columns of numbers: name those to predict with --fields {}label={}",
           numbers.size(), fields.image.empty() ? "" : fmt::format("image={},", printable(image_)),
           printable(fmt::format("{}", fmt::join(numbers, ","))));
    fail("", "there must be a column of numbers, but there are '{}'; name it with --fields label=NAME,...",
         printable(fmt::format("{}", fmt::join(all, "', '"))));
  }
  if (kind_ == LabelKind::classes && labels_.size() > 1)
    fail("", "the label must be one column with --task classify, but --fields names {}", labels_.size());
  for (const std::string& column : others)
    count_unused(unused_, "columns that are neither images nor labels", printable(column));
}

// Tables often name images without their folder beside the table, or without their suffix.
void LabelColumns::find_images(const Row& first, const std::filesystem::path& table) {
  const auto given = first.find(image_);
  if (given == first.end() || !given->is_string()) return;  // named when it is read
  const auto name = given->get<std::string>();
  std::vector<std::string> suffixes{""};
  if (!codec_named(name)) suffixes = {".jpg", ".jpeg", ".png", ".webp"};
  for (const std::string& inside : {std::string(), std::string("images"), table.stem().string()}) {
    for (const std::string& suffix : suffixes) {
      std::error_code error;
      if (!std::filesystem::exists(table.parent_path() / inside / (name + suffix), error)) continue;
      images_ = inside;
      suffix_ = suffix;
      return;
    }
  }
}

/// Whether cells list names, and which names there are.
void LabelColumns::read_names(const std::vector<TableRow>& rows, const std::vector<std::string>& known) {
  names_ = labels_;
  if (labels_.size() > 1) return;
  const std::string& column = labels_.front();
  if (kind_ == LabelKind::values) {
    const Row& value = cell(rows.front(), column);
    if (value.is_array() && value.size() != 1) names_.clear();
    return;
  }
  const auto is_flag = [](const Row& value) {
    const std::optional<double> number = number_in(value);
    return number && *number >= 0 && *number <= 1;
  };
  const auto is_list_of_numbers = [](const Row& value) {
    return value.is_array() && std::ranges::all_of(value, [](const Row& one) { return one.is_number(); });
  };
  bool flags = known.empty() || known == names_, numbers = true;
  std::string texts;
  for (const TableRow& row : rows) {
    const Row& value = cell(row, column, true);
    flags = flags && is_flag(value);
    numbers = numbers && is_list_of_numbers(value) && !value.empty();
    if (value.is_string()) texts += value.get<std::string>();
  }
  if (numbers) names_.clear();
  listed_ = !flags && !numbers;
  if (!listed_) return;
  const auto has_blank = [](const std::string& one) { return one.find(' ') != one.npos; };
  separator_ = std::ranges::any_of(known, has_blank) ? ',' : ' ';
  for (const char separator : {',', '|', ';'})
    if (texts.find(separator) != std::string::npos) separator_ = separator;
  std::set<std::string> names(known.begin(), known.end());
  for (const TableRow& row : rows) {
    for (std::string& one : names_in(row)) {
      if (names.insert(one).second && !known.empty())
        fail(row.where, "field '{}' must have classes of the training images, but has '{}'",
             printable(column), printable(one));
    }
  }
  if (names.empty()) fail("", "field '{}' must name at least one class, but names none", printable(column));
  names_.assign(names.begin(), names.end());
  if (!known.empty()) names_ = known;
}

const LabelColumns::Row& LabelColumns::cell(const TableRow& row, const std::string& column,
                                            bool may_be_empty) const {
  const auto at = row.row.is_object() ? row.row.find(column) : row.row.end();
  const bool is_missing = !row.row.is_object() || at == row.row.end() || at->is_null() ||
                          (!may_be_empty && at->is_string() && at->get<std::string>().empty());
  if (is_missing) fail(row.where, "field '{}' is missing", printable(column));
  return *at;
}

double LabelColumns::number(const Row& value, const std::string& column, const std::string& where) const {
  const bool several = kind_ == LabelKind::multilabel;
  const double x = number_in(value).value_or(std::nan(""));
  if (several ? x >= 0 && x <= 1 : std::isfinite(x)) return x;
  fail(where, "field '{}' must be {}, but is '{}'; --fields label=A,B,... names the columns of labels",
       printable(column), several ? "1 if the image has the class, else 0" : "a finite number",
       printable(cell_text(value)));
}

/// The names that a row's cell lists.
std::vector<std::string> LabelColumns::names_in(const TableRow& row) const {
  const Row& value = cell(row, labels_.front(), true);
  if (!value.is_array()) return parts_of(cell_text(value), separator_);
  std::vector<std::string> names;
  for (const Row& one : value) names.push_back(cell_text(one));
  return names;
}

SampleTable::Row LabelColumns::sample(const TableRow& row) const {
  Row sample = Row::object();
  sample["image"] = cell(row, image_);
  if (Row& image = sample["image"]; image.is_string())
    image = (images_ / image.get<std::string>()).string() + suffix_;
  if (row.row.contains(kWeight) && std::ranges::find(labels_, kWeight) == labels_.end()) {
    const Row& weight = cell(row, kWeight);
    sample[kWeight] = weight.is_string() ? SampleTable::typed(weight.get<std::string>()) : weight;
  }
  if (kind_ == LabelKind::classes) {
    sample["label"] = cell(row, labels_.front());
    return sample;
  }
  Row numbers = Row::array();
  if (listed_) {
    const std::vector<std::string> has = names_in(row);
    for (const std::string& name : names_)
      numbers.push_back(std::ranges::find(has, name) != has.end() ? 1 : 0);
  } else {
    for (const std::string& column : labels_) {
      const Row& value = cell(row, column);
      if (!value.is_array()) {
        numbers.push_back(number(value, column, row.where));
      } else {
        for (const Row& one : value) numbers.push_back(number(one, column, row.where));
      }
    }
  }
  sample[kLabelsField] = std::move(numbers);
  return sample;
}

}  // namespace athanor::detail
