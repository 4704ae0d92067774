#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "data/dataset_view.h"

namespace athanor {

/// A data set with each sample several times in a row: sample i is sample i / times of the source. In
/// training each copy is drawn independently, as in an epoch of its own.
/// Source: Hoffer et al. 2020 (repeated augmentation, "batch augmentation"), arXiv:1901.09335.
class Repeated final : public DatasetView {
 public:
  /// Throws ArgumentError unless times is at least 1.
  Repeated(std::shared_ptr<const Dataset> source, std::int64_t times);

  std::int64_t size() const override { return source().size() * times_; }
  std::int64_t read_in_epoch(std::int64_t index, std::int64_t epoch,
                             std::span<std::uint8_t> pixels) const override;
  void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const override;
  /// The copies of a sample are read one after the other: there is nothing to announce.
  void will_need(std::int64_t /*first*/, std::int64_t /*count*/) const override {}

 private:
  std::int64_t in_source(std::int64_t index) const override;
  std::int64_t epoch_of(std::int64_t index, std::int64_t epoch) const;

  std::int64_t times_;
};

}  // namespace athanor
