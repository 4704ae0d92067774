#include "data/in_memory.h"

#include <algorithm>
#include <cmath>

#include "data/detail/sample_id.h"
#include "tensor/base/error.h"
#include "tensor/philox.h"

namespace athanor {
namespace {

void check_spec(const ImageSpec& spec) {
  ATH_CHECK(spec.height > 0 && spec.width > 0 && spec.channels > 0 && spec.classes > 0,
            "dataset: height, width, channels and classes must be positive, but got {}x{}x{} with {} classes",
            spec.height, spec.width, spec.channels, spec.classes);
}

std::int64_t checked_label(std::int64_t label, std::int64_t index, const ImageSpec& spec) {
  ATH_CHECK(label >= 0 && label < spec.classes,
            "dataset: the label of image {} must be in [0, {}), but got {}", index, spec.classes, label);
  return label;
}

}  // namespace

InMemoryDataset::InMemoryDataset(const ImageSpec& spec, std::vector<std::uint8_t> pixels,
                                 std::vector<std::int64_t> labels)
    : spec_(spec), pixels_(std::move(pixels)), labels_(std::move(labels)) {
  check_spec(spec_);
  const std::int64_t n = std::ssize(labels_);
  ATH_CHECK(std::ssize(pixels_) == n * spec_.bytes(),
            "dataset: {} labels of {}-byte images need {} bytes of pixels, but got {}", n, spec_.bytes(),
            n * spec_.bytes(), pixels_.size());
  for (std::int64_t i = 0; i < n; ++i) checked_label(labels_[static_cast<std::size_t>(i)], i, spec_);
}

InMemoryDataset::InMemoryDataset(const Dataset& source, std::vector<std::string> class_names)
    : spec_(source.spec()),
      class_names_(class_names.empty() ? source.class_names() : std::move(class_names)) {
  for (const FieldSpec& field : source.fields()) {
    ATH_CHECK(field.name == "image" || field.name == "label",
              "dataset: samples must have only an image and a label, but also have '{}'", field.name);
  }
  check_spec(spec_);
  const auto n = static_cast<std::size_t>(source.size()), bytes = static_cast<std::size_t>(spec_.bytes());
  pixels_.resize(n * bytes);
  labels_.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto index = static_cast<std::int64_t>(i);
    labels_[i] = checked_label(source.read(index, {pixels_.data() + i * bytes, bytes}), index, spec_);
  }
}

StoredSample InMemoryDataset::fetch(std::int64_t index, std::vector<std::byte>& /*scratch*/) const {
  const auto i = static_cast<std::size_t>(index), bytes = static_cast<std::size_t>(spec_.bytes());
  ATH_CHECK(i < labels_.size(), "dataset: index must be in [0, {}), but got {}", size(), index);
  return {std::as_bytes(pixels().subspan(i * bytes, bytes)),
          Codec::raw,
          spec_.height,
          spec_.width,
          spec_.channels,
          labels_[i]};
}

std::uint64_t InMemoryDataset::sample_id(std::int64_t index) const {
  std::vector<std::byte> unused;
  const StoredSample sample = fetch(index, unused);
  kernels::HashOf hash;
  hash.add(sample.bytes.size(), crc32c(sample.bytes), sample.label);
  return hash.value();
}

Subset::Subset(std::shared_ptr<const Dataset> data, std::vector<std::int64_t> indices)
    : DatasetView(std::move(data)), indices_(std::move(indices)) {
  for (std::int64_t index : indices_) {
    ATH_CHECK(index >= 0 && index < source().size(), "subset: indices must be in [0, {}), but got {}",
              source().size(), index);
  }
}

std::int64_t Subset::in_source(std::int64_t index) const {
  ATH_CHECK(index >= 0 && index < size(), "subset: index must be in [0, {}), but got {}", size(), index);
  return indices_[static_cast<std::size_t>(index)];
}

void Subset::will_need(std::int64_t first, std::int64_t count) const {
  const std::int64_t end = first + std::min(count, size() - first);
  for (std::int64_t i = std::max<std::int64_t>(first, 0); i < end; ++i) source().will_need(in_source(i), 1);
}

std::pair<std::unique_ptr<Dataset>, std::unique_ptr<Dataset>> split(std::shared_ptr<const Dataset> source,
                                                                    double fraction) {
  ATH_CHECK(fraction > 0 && fraction < 1, "split: fraction must be in (0, 1), but got {}", fraction);
  // Random, not every k-th: files often have a periodic order, such as cycling through the classes.
  const std::int64_t n = source->size();
  const std::vector<std::int64_t> order =
      philox_permutation(n, {0, random_stream(RandomPurpose::order, 0, 1)});
  const auto held_out = order.begin() + std::llround(static_cast<double>(n) * fraction);
  std::vector<std::int64_t> first(held_out, order.end()), second(order.begin(), held_out);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  return {std::make_unique<Subset>(source, std::move(first)),
          std::make_unique<Subset>(source, std::move(second))};
}

}  // namespace athanor
