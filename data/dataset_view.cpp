#include "data/dataset_view.h"

#include <utility>

#include "tensor/base/error.h"

namespace athanor {

DatasetView::DatasetView(std::shared_ptr<const Dataset> source) : source_(std::move(source)) {
  ATH_CHECK(source_, "data set: the data set below a view must not be null");
}

StoredSample DatasetView::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  return source_->fetch(in_source(index), scratch);
}

std::vector<double> DatasetView::numbers(std::string_view field) const {
  const std::vector<double> all = source_->numbers(field);
  const std::int64_t each = source_->size() > 0 ? std::ssize(all) / source_->size() : 0;
  std::vector<double> mine;
  mine.reserve(static_cast<std::size_t>(size() * each));
  for (std::int64_t i = 0; i < size(); ++i) {
    const auto first = all.begin() + in_source(i) * each;
    mine.insert(mine.end(), first, first + each);
  }
  return mine;
}

std::int64_t DatasetView::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  return source_->read(in_source(index), pixels);
}

std::int64_t DatasetView::read_in_epoch(std::int64_t index, std::int64_t epoch,
                                        std::span<std::uint8_t> pixels) const {
  return source_->read_in_epoch(in_source(index), epoch, pixels);
}

void DatasetView::read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const {
  source_->read_fields(in_source(index), epoch, row);
}

std::string DatasetView::check_sample(std::int64_t index) const {
  return source_->check_sample(in_source(index));
}

std::int64_t DatasetView::origin_index(std::int64_t index) const {
  return source_->origin_index(in_source(index));
}

std::optional<std::int64_t> DatasetView::image_bytes(std::int64_t index) const {
  return source_->image_bytes(in_source(index));
}

}  // namespace athanor
