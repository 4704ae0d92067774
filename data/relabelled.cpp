#include "data/relabelled.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "data/check_labels.h"
#include "data/formats/detail/bytes.h"
#include "data/sample_row.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor {
namespace {

/// "'ant', 'bee' and 7 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  std::string all;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    all += fmt::format("{}'{}'", i == 0 ? "" : ", ", printable(names[i]));
  return names.size() > kShown ? fmt::format("{} and {} more", all, names.size() - kShown) : all;
}

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
}

/// Whether a character of UTF-8 is a part of the letter before: an accent, a mark of kana, a later sound of a
/// Hangul syllable. Unicode has such letters in one piece, too, and programs choose differently.
bool is_mark(std::string_view character) {
  const auto in = [&](std::string_view first, std::string_view last) {
    return character >= first && character <= last;  // as the numbers of characters are
  };
  return in("\u0300", "\u036f") || in("\u1160", "\u11ff") || in("\u3099", "\u309a");
}

/// Each with its marks; those of ASCII in lower case; without blanks around the name.
std::vector<std::string> letters_of(std::string_view name) {
  name = detail::trimmed(name);
  std::vector<std::string> letters;
  while (!name.empty()) {
    const auto end = std::find_if(name.begin() + 1, name.end(), begins_character);
    const std::string_view character = name.substr(0, static_cast<std::size_t>(end - name.begin()));
    if (!letters.empty() && is_mark(character)) {
      letters.back() += character;
    } else {
      letters.push_back(detail::lower_case(character));
    }
    name.remove_prefix(character.size());
  }
  return letters;
}

/// Equal, or one of them in one piece, not of ASCII, and the other in several.
bool look_alike(const std::string& a, const std::string& b) {
  const auto pieces = [](const std::string& letter) {
    return std::count_if(letter.begin(), letter.end(), begins_character);
  };
  return a == b || (a.size() > 1 && b.size() > 1 && pieces(a) != pieces(b));
}

/// "; 'é' and 'é' look alike, but are the bytes c3 a9 and 65 cc 81" of the first such pair, or "".
std::string which_look_alike(const std::vector<std::string>& names, const std::vector<std::string>& others) {
  const auto hex = [](std::string_view name) {
    std::string all;
    for (const unsigned char byte : name) all += fmt::format("{}{:02x}", all.empty() ? "" : " ", byte);
    return all;
  };
  std::vector<std::vector<std::string>> letters;
  for (const std::string& other : others) letters.push_back(letters_of(other));
  for (const std::string& name : names) {
    const std::vector<std::string> own = letters_of(name);
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (std::ranges::equal(own, letters[i], look_alike))
        return fmt::format("; '{}' and '{}' look alike, but are the bytes {} and {}", printable(name),
                           printable(others[i]), hex(name), hex(others[i]));
    }
  }
  return {};
}

}  // namespace

Relabelled::Relabelled(std::shared_ptr<const Dataset> data, std::vector<std::string> class_names)
    : DatasetView(std::move(data)), class_names_(std::move(class_names)), spec_(source().spec()) {
  std::unordered_map<std::string, std::int64_t> known;
  for (std::size_t i = 0; i < class_names_.size(); ++i) {
    ATH_CHECK(known.emplace(class_names_[i], static_cast<std::int64_t>(i)).second,
              "classes: each name must appear once, but '{}' appears twice", printable(class_names_[i]));
  }
  std::vector<std::string> unknown;
  for (const std::string& name : source().class_names()) {
    const auto at = known.find(name);
    if (at == known.end()) unknown.push_back(name);
    numbers_.push_back(at == known.end() ? -1 : at->second);
  }
  // A class without samples may be unknown: a part of a set has all names of the set.
  const auto is_of_unknown = [&](std::int64_t index) {
    const auto label = static_cast<std::size_t>(source().label(index));
    return label < numbers_.size() && numbers_[label] < 0;
  };
  std::int64_t i = 0;
  while (!unknown.empty() && i < source().size() && !is_of_unknown(i)) ++i;
  if (i == source().size()) unknown.clear();
  ATH_CHECK(unknown.empty(), "classes: the data must have no others than {}, but has {}{}",
            some_of(class_names_), some_of(unknown), which_look_alike(unknown, class_names_));
  ATH_CHECK(std::ssize(numbers_) >= spec_.classes,
            "classes: there must be a name for each of {}, but there are {}", spec_.classes, numbers_.size());
  spec_.classes = std::ssize(class_names_);
}

std::int64_t Relabelled::number_of(std::int64_t label) const {
  if (label < 0 || label >= std::ssize(numbers_) || numbers_[static_cast<std::size_t>(label)] < 0)
    detail::fail<IoError>("classes: a label must be in [0, {}), but is {}", numbers_.size(), label);
  return numbers_[static_cast<std::size_t>(label)];
}

StoredSample Relabelled::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  StoredSample sample = source().fetch(index, scratch);
  sample.label = number_of(sample.label);
  return sample;
}

std::int64_t Relabelled::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  return number_of(source().read(index, pixels));
}

std::int64_t Relabelled::read_in_epoch(std::int64_t index, std::int64_t epoch,
                                       std::span<std::uint8_t> pixels) const {
  return number_of(source().read_in_epoch(index, epoch, pixels));
}

void Relabelled::read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const {
  source().read_fields(index, epoch, row);
  row.set_label(number_of(row.label()));
}

std::shared_ptr<const Dataset> with_classes(std::shared_ptr<const Dataset> data,
                                            const std::vector<std::string>& class_names) {
  const std::vector<std::string> own = data->class_names();
  if (own.empty() || class_names.empty() || own == class_names) return data;
  ATH_CHECK(
      !has_several_labels(*data),
      "labels: must be {} in this order, but are {}; those of a table (.csv, .jsonl) are matched by name",
      some_of(class_names), some_of(own));
  return std::make_shared<Relabelled>(std::move(data), class_names);
}

}  // namespace athanor
