#include "data/loader.h"

#include <algorithm>
#include <numeric>

#include "data/in_memory.h"
#include "tensor/error.h"
#include "tensor/philox.h"

namespace athanor {
namespace {

Batch make_batch(std::int64_t size, const ImageSpec& spec) {
  return {Tensor::empty({size, spec.height, spec.width, spec.channels}, {DType::u8, kCpu}),
          Tensor::empty({size}, {DType::i64, kCpu}), Tensor::empty({size}, {DType::i64, kCpu})};
}

}  // namespace

Loader::Loader(const Dataset& data, const LoaderOptions& options)
    : decoded_(data.resident() ? nullptr : std::make_unique<InMemoryDataset>(data)),
      data_(decoded_ ? decoded_.get() : &data),
      options_(options) {
  ATH_CHECK(data_->size() > 0, "loader: the data set must hold at least one sample, but is empty");
  ATH_CHECK(options_.batch_size > 0, "loader: batch size must be at least 1, but got {}",
            options_.batch_size);
  options_.batch_size = std::min(options_.batch_size, data_->size());
  full_ = make_batch(options_.batch_size, spec());
  if (const std::int64_t rest = samples_per_epoch() % options_.batch_size; rest > 0) {
    last_ = make_batch(rest, spec());
  }
  order_.resize(static_cast<std::size_t>(data_->size()));
  start_epoch(0);
}

void Loader::start_epoch(std::int64_t epoch, std::int64_t delivered) {
  ATH_CHECK(epoch >= 0, "loader: epoch must be at least 0, but got {}", epoch);
  const bool ends_a_batch = delivered % options_.batch_size == 0 || delivered == samples_per_epoch();
  ATH_CHECK(delivered >= 0 && delivered <= samples_per_epoch() && ends_a_batch,
            "loader: an epoch of {} samples must go on at the end of a batch of {}, but got {} delivered",
            samples_per_epoch(), options_.batch_size, delivered);
  epoch_ = epoch;
  at_ = delivered;
  if (options_.shuffle) {
    const auto stream = random_stream(RandomPurpose::order, static_cast<std::uint64_t>(epoch));
    order_ = philox_permutation(data_->size(), {options_.seed, stream});
  } else {
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
  }
}

bool Loader::next(Batch& batch) {
  const std::int64_t count = std::min(options_.batch_size, samples_per_epoch() - at_);
  if (count <= 0) return false;
  batch = count == options_.batch_size ? full_ : last_;
  auto* pixels = batch.images.data<std::uint8_t>();
  auto *labels = batch.labels.data<std::int64_t>(), *samples = batch.samples.data<std::int64_t>();
  const auto bytes = static_cast<std::size_t>(spec().bytes());
  for (std::int64_t i = 0; i < count; ++i, ++at_) {
    samples[i] = order_[static_cast<std::size_t>(at_)];
    labels[i] = data_->read(samples[i], {pixels + static_cast<std::size_t>(i) * bytes, bytes});
  }
  for (const Tensor* tensor : {&batch.images, &batch.labels, &batch.samples}) tensor->bump_version();
  return true;
}

std::int64_t Loader::samples_per_epoch() const {
  const std::int64_t n = data_->size();
  return options_.drop_last ? n - n % options_.batch_size : n;
}

std::int64_t Loader::batches_per_epoch() const {
  return (samples_per_epoch() + options_.batch_size - 1) / options_.batch_size;
}

}  // namespace athanor
