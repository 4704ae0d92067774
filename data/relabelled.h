#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace athanor {

/// A data set with other classes' numbers: each of its classes gets the number of the class of the same name
/// in `class_names`, those of a model or of another set. Classes without samples are allowed.
class Relabelled final : public Dataset {
 public:
  /// Throws ArgumentError, naming the class, if `source` has samples of one that `class_names` lacks. Both
  /// must have names, each once.
  Relabelled(std::shared_ptr<const Dataset> source, std::vector<std::string> class_names);

  std::int64_t size() const override { return source_->size(); }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<FieldSpec> fields() const override { return source_->fields(); }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::int64_t shorter_side() const override { return source_->shorter_side(); }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  std::int64_t label(std::int64_t index) const override { return number_of(source_->label(index)); }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  std::int64_t read_in_epoch(std::int64_t index, std::int64_t epoch,
                             std::span<std::uint8_t> pixels) const override;
  void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const override;
  std::string check_sample(std::int64_t index) const override { return source_->check_sample(index); }
  std::vector<Unused> unused() const override { return source_->unused(); }
  const Dataset& origin() const override { return source_->origin(); }
  std::int64_t origin_index(std::int64_t index) const override { return source_->origin_index(index); }
  std::uint64_t sample_id(std::int64_t index) const override { return source_->sample_id(index); }
  std::string where(std::int64_t index) const override { return source_->where(index); }
  bool stages() const override { return source_->stages(); }
  bool resident() const override { return source_->resident(); }
  void will_need(std::int64_t first, std::int64_t count) const override { source_->will_need(first, count); }

 private:
  std::int64_t number_of(std::int64_t label) const;

  std::shared_ptr<const Dataset> source_;
  std::vector<std::string> class_names_;
  std::vector<std::int64_t> numbers_;  // by the source's label
  ImageSpec spec_;
};

/// `data` with the numbers of `class_names`: itself if its classes are these, in this order, or if either
/// has no names. Throws ArgumentError as Relabelled does.
std::shared_ptr<const Dataset> with_classes(std::shared_ptr<const Dataset> data,
                                            const std::vector<std::string>& class_names);

}  // namespace athanor
