#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset_view.h"

namespace athanor {

/// A data set with other classes' numbers: each of its classes gets the number of the class of the same name
/// in `class_names`, those of a model or of another set. Classes without samples are allowed.
class Relabelled final : public DatasetView {
 public:
  /// Throws ArgumentError, naming the class, if `data` has samples of one that `class_names` lacks. Both
  /// must have names, each once.
  Relabelled(std::shared_ptr<const Dataset> data, std::vector<std::string> class_names);

  const ImageSpec& spec() const override { return spec_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  std::int64_t label(std::int64_t index) const override { return number_of(source().label(index)); }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  std::int64_t read_in_epoch(std::int64_t index, std::int64_t epoch,
                             std::span<std::uint8_t> pixels) const override;
  void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const override;

 private:
  std::int64_t number_of(std::int64_t label) const;

  std::vector<std::string> class_names_;
  std::vector<std::int64_t> numbers_;  // by the source's label
  ImageSpec spec_;
};

/// `data` with the numbers of `class_names`: itself if its classes are these, in this order, or if either
/// has no names. Several labels of an image are put in this order. Throws ArgumentError as Relabelled does,
/// and if several labels have other names than these.
std::shared_ptr<const Dataset> with_classes(std::shared_ptr<const Dataset> data,
                                            const std::vector<std::string>& class_names);

}  // namespace athanor
