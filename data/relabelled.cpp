#include "data/relabelled.h"

#include <algorithm>
#include <new>
#include <span>
#include <unordered_map>
#include <utility>

#include "data/check_labels.h"
#include "data/detail/thread_scratch.h"
#include "data/formats/detail/bytes.h"
#include "data/label_kind.h"
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

/// Samples of several labels, with these in another order.
class LabelsInOrder final : public DatasetView {
 public:
  /// Throws ArgumentError unless `names` are the names of the labels in another order.
  LabelsInOrder(std::shared_ptr<const Dataset> data, const std::vector<std::string>& names)
      : DatasetView(std::move(data)), names_(names) {
    const std::vector<std::string> own = source().class_names();
    ATH_CHECK(std::ranges::is_permutation(own, names),
              "labels: must be {}, in any order, but are {}; of a table (.csv, .jsonl), the columns of these "
              "names are read",
              some_of(names), some_of(own));
    for (const std::string& name : names)
      from_.push_back(static_cast<std::size_t>(std::ranges::find(own, name) - own.begin()));
  }

  std::vector<std::string> class_names() const override { return names_; }

  std::vector<double> numbers(std::string_view field) const override {
    std::vector<double> all = source().numbers(field);
    if (field != kLabelsField) return all;
    for (auto row = all.begin(); row != all.end(); row += std::ssize(from_))
      put_in_order(std::span(row, from_.size()));
    return all;
  }

  /// Copied, because labels of a source need not be in memory of `scratch`.
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    detail::ThreadScratch own;
    StoredSample sample = source().fetch(index, own.bytes());
    const std::span<const StoredField> more = sample.more;
    scratch.resize(more.size() * sizeof(StoredField) + static_cast<std::size_t>(sample.stored_bytes()));
    auto* const fields = reinterpret_cast<StoredField*>(scratch.data());
    std::byte* to = scratch.data() + more.size() * sizeof(StoredField);
    const auto copied = [&to](std::span<const std::byte> bytes) {
      const std::span<const std::byte> copy(to, bytes.size());
      to = std::copy(bytes.begin(), bytes.end(), to);
      return copy;
    };
    sample.bytes = copied(sample.bytes);
    std::size_t place = 0;
    for (const FieldSpec& field : source().fields()) {
      if (field.name == "image" || place == more.size()) continue;
      StoredField one = more[place];
      if (field.name == kLabelsField) {
        std::vector<float> labels(from_.size());
        const std::span<std::byte> bytes = std::as_writable_bytes(std::span(labels));
        if (one.bytes.size() != bytes.size())
          detail::fail<IoError>("{}: field '{}' must have {} bytes, but has {}", where(index), field.name,
                                bytes.size(), one.bytes.size());
        std::ranges::copy(one.bytes, bytes.begin());
        put_in_order(std::span(labels));
        one.bytes = copied(bytes);
      } else {
        one.bytes = copied(one.bytes);
      }
      new (fields + place++) StoredField(one);
    }
    sample.more = {fields, place};
    return sample;
  }

  void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const override {
    source().read_fields(index, epoch, row);
    put_in_order(row.get<float>(kLabelsField));
  }

 private:
  template <class T> void put_in_order(std::span<T> labels) const {
    const std::vector<T> before(labels.begin(), labels.end());
    for (std::size_t i = 0; i < from_.size(); ++i) labels[i] = before[from_[i]];
  }

  std::vector<std::string> names_;
  std::vector<std::size_t> from_;  // where each label is in the source
};

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
  if (has_several_labels(*data)) return std::make_shared<LabelsInOrder>(std::move(data), class_names);
  return std::make_shared<Relabelled>(std::move(data), class_names);
}

}  // namespace athanor
