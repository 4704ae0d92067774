#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "data/detail/thread_scratch.h"
#include "data/sample_row.h"
#include "kernels/hash.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor {

const char* name_of(Codec codec) {
  switch (codec) {
    case Codec::raw: return "raw";
    case Codec::jpeg: return "jpeg";
    case Codec::png: return "png";
    case Codec::webp: return "webp";
  }
  return "unknown";
}

std::int64_t StoredSample::stored_bytes() const {
  std::int64_t all = std::ssize(bytes);
  for (const StoredField& field : more) all += std::ssize(field.bytes);
  return all;
}

std::vector<FieldSpec> Dataset::fields() const {
  const ImageSpec& image = spec();
  return {{"image", DType::u8, {image.height, image.width, image.channels}, FieldKind::picture},
          {"label", DType::i64}};
}

void Dataset::read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const {
  const RowLayout& layout = row.layout();
  if (layout.others() == 0) {
    row.set_label(epoch == kEvaluation ? read(index, row.image()) : read_in_epoch(index, epoch, row.image()));
    return;
  }
  detail::ThreadScratch scratch;
  const StoredSample sample = fetch(index, scratch.bytes());
  row.set_label(sample.label);
  std::size_t next = 0;
  for (std::size_t i = 0; i < layout.fields.size(); ++i) {
    if (i == layout.label) continue;
    if (i != layout.image && next == sample.more.size())
      detail::fail<IoError>("field '{}' is missing", layout.fields[i].name);
    const StoredField field =
        i == layout.image ? StoredField{sample.bytes, sample.codec} : sample.more[next++];
    if (field.codec != Codec::raw)
      detail::fail<IoError>("field '{}' must be raw, but is {}: decode it with a DecodedDataset",
                            layout.fields[i].name, name_of(field.codec));
    row.set(i, field.bytes);
  }
}

void count_unused(std::vector<Unused>& all, std::string_view cause, std::string name) {
  constexpr std::size_t kNames = 3;
  auto at = std::find_if(all.begin(), all.end(), [&](const Unused& one) { return one.cause == cause; });
  if (at == all.end()) at = all.insert(at, {std::string(cause), 0, {}});
  ++at->count;
  at->names.insert(std::upper_bound(at->names.begin(), at->names.end(), name), std::move(name));
  if (at->names.size() > kNames) at->names.pop_back();
}

void add_unused(std::vector<Unused>& all, const std::vector<Unused>& more) {
  for (const Unused& one : more) {
    for (const std::string& name : one.names) count_unused(all, one.cause, name);
    const auto at =
        std::find_if(all.begin(), all.end(), [&](const Unused& has) { return has.cause == one.cause; });
    if (at == all.end()) {
      all.push_back(one);
    } else {
      at->count += one.count - std::ssize(one.names);
    }
  }
}

std::string text_of(const std::vector<Unused>& unused) {
  std::string text;
  for (const Unused& one : unused) {
    text += fmt::format("{}{} {} (", text.empty() ? "" : ", ", one.count, one.cause);
    for (std::size_t i = 0; i < one.names.size(); ++i) text += (i == 0 ? "" : ", ") + printable(one.names[i]);
    text += one.count > std::ssize(one.names) ? ", ...)" : ")";
  }
  return text;
}

std::uint64_t data_id(const Dataset& data) {
  const ImageSpec& spec = data.spec();
  kernels::HashOf hash;
  hash.add(data.size(), spec.channels, spec.classes);
  for (const std::string& name : data.class_names()) hash.add(kernels::fnv1a(name));
  for (std::int64_t i = 0; i < data.size(); ++i) hash.add(data.sample_id(i));
  return hash.value();
}

std::int64_t Dataset::label(std::int64_t index) const {
  detail::ThreadScratch scratch;
  return fetch(index, scratch.bytes()).label;
}

std::vector<double> Dataset::numbers(std::string_view name) const {
  std::size_t place = 0;  // among the fields besides image and label
  std::optional<FieldSpec> found;
  for (const FieldSpec& field : fields()) {
    if (field.name == "image" || field.name == "label") continue;
    if (field.name == name && field.kind == FieldKind::values) found = field;
    if (found) break;
    ++place;
  }
  ATH_CHECK(found, "dataset: '{}' must be a field of numbers, but samples have none", name);
  Shape all{size()};
  for (const std::int64_t side : found->shape) all.push_back(side);
  const Tensor values = Tensor::zeros(all, {found->dtype, kCpu});
  const auto bytes = static_cast<std::size_t>(found->bytes());
  std::vector<std::int64_t> unreadable;
  detail::ThreadScratch scratch;
  for (std::int64_t i = 0; i < size(); ++i) {
    StoredSample sample;
    try {
      sample = fetch(i, scratch.bytes());
    } catch (const IoError&) {
      unreadable.push_back(i);
      continue;
    }
    if (place >= sample.more.size() || sample.more[place].bytes.size() != bytes)
      detail::fail<IoError>("{}: field '{}' must have {} bytes, but has {}", where(i), name, bytes,
                            place < sample.more.size() ? sample.more[place].bytes.size() : 0);
    std::memcpy(values.raw_data() + static_cast<std::size_t>(i) * bytes, sample.more[place].bytes.data(),
                bytes);
  }
  std::vector<double> numbers = values.to_vector();
  for (const std::int64_t i : unreadable)
    std::fill_n(numbers.begin() + i * found->shape.numel(), found->shape.numel(), std::nan(""));
  return numbers;
}

std::string Dataset::check_sample(std::int64_t index) const {
  detail::ThreadScratch scratch;
  fetch(index, scratch.bytes());
  return {};
}

std::int64_t Dataset::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  ATH_CHECK(index >= 0 && index < size() && std::ssize(pixels) == spec().bytes() && !pixels.empty(),
            "dataset: image {} of {} cannot be read into a buffer of {} bytes; it needs {}", index, size(),
            pixels.size(), spec().bytes());
  detail::ThreadScratch scratch;
  const StoredSample sample = fetch(index, scratch.bytes());
  ATH_CHECK(sample.codec == Codec::raw && sample.bytes.size() == pixels.size(),
            "dataset: image {} must be raw and have {} bytes, but is {} with {} bytes: decode it with a "
            "DecodedDataset",
            index, pixels.size(), name_of(sample.codec), sample.bytes.size());
  std::memcpy(pixels.data(), sample.bytes.data(), pixels.size());
  return sample.label;
}

StoredSample ImageDataset::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  const ImageSpec& image = spec();
  ATH_CHECK(index >= 0 && index < size(), "dataset: index must be in [0, {}), but got {}", size(), index);
  scratch.resize(static_cast<std::size_t>(image.bytes()));
  const std::int64_t label = read(index, {reinterpret_cast<std::uint8_t*>(scratch.data()), scratch.size()});
  return {scratch, Codec::raw, image.height, image.width, image.channels, label};
}

}  // namespace athanor
