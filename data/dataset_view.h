#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace athanor {

/// A data set on top of another: a part of it, or the same samples with something changed. Passes every call
/// on; a view overrides what it changes. A view of other samples overrides size() and in_source().
class DatasetView : public Dataset {
 public:
  explicit DatasetView(std::shared_ptr<const Dataset> source);

  std::int64_t size() const override { return source_->size(); }
  const ImageSpec& spec() const override { return source_->spec(); }
  std::vector<FieldSpec> fields() const override { return source_->fields(); }
  std::vector<std::string> class_names() const override { return source_->class_names(); }
  ImageTransform resizing() const override { return source_->resizing(); }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  std::int64_t label(std::int64_t index) const override { return source_->label(in_source(index)); }
  std::vector<double> numbers(std::string_view field) const override;
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  std::int64_t read_in_epoch(std::int64_t index, std::int64_t epoch,
                             std::span<std::uint8_t> pixels) const override;
  void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const override;
  std::string check_sample(std::int64_t index) const override;
  std::uint64_t sample_id(std::int64_t index) const override { return source_->sample_id(in_source(index)); }
  std::vector<Unused> unused() const override { return source_->unused(); }
  const Dataset& origin() const override { return source_->origin(); }
  std::int64_t origin_index(std::int64_t index) const override;
  std::optional<std::int64_t> image_bytes(std::int64_t index) const override;
  std::string where(std::int64_t index) const override { return source_->where(in_source(index)); }
  bool stages() const override { return source_->stages(); }
  bool resident() const override { return source_->resident(); }
  void will_need(std::int64_t first, std::int64_t count) const override { source_->will_need(first, count); }

 protected:
  /// Which sample of source() sample `index` is. Throws ArgumentError outside [0, size()).
  virtual std::int64_t in_source(std::int64_t index) const { return index; }
  const Dataset& source() const { return *source_; }
  const std::shared_ptr<const Dataset>& shared_source() const { return source_; }

 private:
  std::shared_ptr<const Dataset> source_;
};

}  // namespace athanor
