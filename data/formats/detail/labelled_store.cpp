#include "data/formats/detail/labelled_store.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "data/dataset_view.h"
#include "data/formats/crc32c.h"
#include "data/label_kind.h"
#include "kernels/hash.h"
#include "tensor/base/error.h"

namespace athanor::detail {
namespace {

class LabelledStore final : public DatasetView {
 public:
  LabelledStore(std::shared_ptr<const Dataset> images, std::vector<float> labels,
                std::vector<std::string> names)
      : DatasetView(std::move(images)),
        labels_(std::move(labels)),
        names_(std::move(names)),
        spec_(source().spec()) {
    spec_.classes = size() > 0 ? std::ssize(labels_) / size() : 0;
    ATH_CHECK(spec_.classes > 0 && spec_.classes * size() == std::ssize(labels_),
              "labels: there must be equally many for each of {} images, but there are {}", size(),
              labels_.size());
    ATH_CHECK(names_.empty() || std::ssize(names_) == spec_.classes,
              "labels: there must be {} names, but there are {}", spec_.classes, names_.size());
    const std::span<const std::byte> bytes = std::as_bytes(std::span(labels_));
    const auto each = static_cast<std::size_t>(spec_.classes) * sizeof(float);
    for (std::size_t at = 0; at < bytes.size(); at += each) fields_.push_back({bytes.subspan(at, each)});
  }

  const ImageSpec& spec() const override { return spec_; }
  std::vector<FieldSpec> fields() const override {
    std::vector<FieldSpec> all = source().fields();
    std::erase_if(all, [](const FieldSpec& field) { return field.name != "image"; });
    all.push_back({kLabelsField, DType::f32, {spec_.classes}});
    return all;
  }
  std::vector<std::string> class_names() const override { return names_; }
  std::int64_t label(std::int64_t) const override { return 0; }
  std::vector<double> numbers(std::string_view field) const override {
    if (field != kLabelsField) return Dataset::numbers(field);  // names the error
    return {labels_.begin(), labels_.end()};
  }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    StoredSample sample = source().fetch(index, scratch);
    sample.label = 0;
    sample.more = {&field_of(index), 1};
    return sample;
  }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    return Dataset::read(index, pixels);
  }
  std::int64_t read_in_epoch(std::int64_t index, std::int64_t /*epoch*/,
                             std::span<std::uint8_t> pixels) const override {
    return Dataset::read(index, pixels);
  }
  void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const override {
    Dataset::read_fields(index, epoch, row);
  }
  std::uint64_t sample_id(std::int64_t index) const override {
    kernels::HashOf hash;
    hash.add(source().sample_id(index), crc32c(field_of(index).bytes));
    return hash.value();
  }

 private:
  const StoredField& field_of(std::int64_t index) const {
    ATH_CHECK(index >= 0 && index < size(), "labels: index must be in [0, {}), but got {}", size(), index);
    return fields_[static_cast<std::size_t>(index)];
  }

  std::vector<float> labels_;
  std::vector<std::string> names_;
  ImageSpec spec_;
  std::vector<StoredField> fields_;  // "labels" of each image
};

}  // namespace

std::unique_ptr<Dataset> with_labels(std::unique_ptr<Dataset> images, std::vector<float> labels,
                                     std::vector<std::string> names) {
  return std::make_unique<LabelledStore>(std::move(images), std::move(labels), std::move(names));
}

}  // namespace athanor::detail
