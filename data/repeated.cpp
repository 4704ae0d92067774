#include "data/repeated.h"

#include <utility>

#include "tensor/base/error.h"

namespace athanor {

Repeated::Repeated(std::shared_ptr<const Dataset> source, std::int64_t times)
    : DatasetView(std::move(source)), times_(times) {
  ATH_CHECK(times >= 1, "repeated: samples must be there at least once, but got {}", times);
}

std::int64_t Repeated::in_source(std::int64_t index) const {
  ATH_CHECK(index >= 0 && index < size(), "repeated: index must be in [0, {}), but got {}", size(), index);
  return index / times_;
}

/// An epoch for each copy, which no other copy has in any epoch.
std::int64_t Repeated::epoch_of(std::int64_t index, std::int64_t epoch) const {
  return epoch == kEvaluation ? epoch : epoch * times_ + index % times_;
}

std::int64_t Repeated::read_in_epoch(std::int64_t index, std::int64_t epoch,
                                     std::span<std::uint8_t> pixels) const {
  return source().read_in_epoch(in_source(index), epoch_of(index, epoch), pixels);
}

void Repeated::read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const {
  source().read_fields(in_source(index), epoch_of(index, epoch), row);
}

}  // namespace athanor
