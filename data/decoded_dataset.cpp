#include "data/decoded_dataset.h"

#include "tensor/error.h"

namespace athanor {
namespace {

/// What a thread keeps from image to image, whatever the data set.
struct ThreadState {
  std::vector<std::byte> bytes;
  ImageReader reader;
};

ThreadState& thread_state() {
  thread_local ThreadState mine;
  return mine;
}

}  // namespace

DecodedDataset::DecodedDataset(std::shared_ptr<const Dataset> store, const ImageTransform& training,
                               const ImageTransform& evaluation, std::uint64_t seed)
    : store_(std::move(store)), training_(training), evaluation_(evaluation), seed_(seed) {
  ATH_CHECK(store_, "decoded data set: there must be a store");
  check(training);
  check(evaluation);
  ATH_CHECK(!evaluation.random_crop, "decoded data set: evaluation must not draw, but got: {}",
            describe(evaluation));
  ATH_CHECK(training.height == evaluation.height && training.width == evaluation.width,
            "decoded data set: training and evaluation must give one size, but got {}x{} and {}x{}",
            training.height, training.width, evaluation.height, evaluation.width);
  constexpr std::int64_t kRgb = 3;
  const ImageSpec& stored = store_->spec();
  spec_ = {training.height, training.width, stored.channels > 0 ? stored.channels : kRgb, stored.classes};
}

DecodedDataset::DecodedDataset(std::shared_ptr<const Dataset> store, const ImageTransform& evaluation)
    : DecodedDataset(std::move(store), evaluation, evaluation, 0) {}

std::int64_t DecodedDataset::transformed(const ImageTransform& transform, const DrawKey& key,
                                         std::span<std::uint8_t> pixels) const {
  ATH_CHECK(key.sample >= 0 && key.sample < size() && std::ssize(pixels) == spec_.bytes(),
            "decoded data set: image {} of {} cannot be read into {} bytes, which must be {}", key.sample,
            size(), pixels.size(), spec_.bytes());
  ThreadState& mine = thread_state();
  const StoredSample sample = store_->fetch(key.sample, mine.bytes);
  try {
    mine.reader.read(sample, transform, key, spec_.channels, pixels);
  } catch (const IoError& error) {
    detail::fail<IoError>("{}: {}; replace it or leave it out", where(key.sample), error.what());
  }
  return sample.label;
}

std::int64_t DecodedDataset::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  return transformed(evaluation_, {seed_, 0, index}, pixels);
}

std::int64_t DecodedDataset::read_in_epoch(std::int64_t index, std::int64_t epoch,
                                           std::span<std::uint8_t> pixels) const {
  return transformed(training_, {seed_, epoch, index}, pixels);
}

}  // namespace athanor
