#pragma once

#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/image/transform.h"

namespace athanor {

/// Images of one size from stored ones of any: decoded and transformed at each read. Encoded images are RGB;
/// a store of raw ones keeps its channels.
///
///     const auto photos = std::make_shared<ImageFolder>("imagenet/train");
///     const DecodedDataset train(photos, {.random_crop = RandomResizedCrop{}}, {.shorter_side = 256}, seed);
///
/// read_in_epoch() is the training transform, drawn by (seed, epoch, index) alone; read() the evaluation
/// transform, which must not draw. Errors name the sample's place.
///
/// Where samples have more fields, pictures and targets become the same part of theirs, masks too, by their
/// nearest pixel; boxes and points move with it; values stay. A mask is a PNG (of a palette its indices
/// count, of grey the bytes) or raw. All that a network sees beside the image must have the image's size.
class DecodedDataset final : public ImageDataset {
 public:
  /// Throws ArgumentError where the two transforms differ in size, or one cannot be.
  DecodedDataset(std::shared_ptr<const Dataset> store, const ImageTransform& training,
                 const ImageTransform& evaluation, std::uint64_t seed);
  /// Without a transform for training: both are `evaluation`.
  DecodedDataset(std::shared_ptr<const Dataset> store, const ImageTransform& evaluation);

  std::int64_t size() const override { return store_->size(); }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<FieldSpec> fields() const override { return fields_; }
  std::vector<std::string> class_names() const override { return store_->class_names(); }
  std::int64_t shorter_side() const override { return evaluation_.shorter_side; }
  std::int64_t label(std::int64_t index) const override { return store_->label(index); }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  std::int64_t read_in_epoch(std::int64_t index, std::int64_t epoch,
                             std::span<std::uint8_t> pixels) const override;
  void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const override;
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  std::string where(std::int64_t index) const override { return store_->where(index); }
  void will_need(std::int64_t first, std::int64_t count) const override { store_->will_need(first, count); }

 private:
  std::int64_t transformed(const ImageTransform& transform, const DrawKey& key,
                           std::span<std::uint8_t> pixels) const;

  std::shared_ptr<const Dataset> store_;
  ImageTransform training_, evaluation_;
  std::uint64_t seed_;
  ImageSpec spec_;
  std::vector<FieldSpec> fields_;
};

}  // namespace athanor
