#pragma once

#include <memory>
#include <vector>

#include "data/dataset_view.h"
#include "data/image/transform.h"

namespace athanor {

class ImageReader;

/// Dataset::check_sample() of a store, which also decodes the sample's images to their last row and checks
/// their sizes against each other.
std::string check_images(const Dataset& store, std::int64_t index);

/// Images of one size from stored images of any size, decoded and transformed at each read. Encoded images
/// become RGB; a store of raw images keeps its channels.
///
///     const auto photos = std::make_shared<ImageFolder>("imagenet/train");
///     const DecodedDataset train(photos, {.random_crop = RandomResizedCrop{}}, {.shorter_side = 256}, seed);
///
/// read_in_epoch() applies the training transform, drawn by (seed, epoch, index) only; read() the evaluation
/// transform, which must not be random. Errors name the sample's source. For a GPU, a Loader has images
/// scaled there, with the same bits (LoaderOptions::resize_on_device), unless they are bicubic.
///
/// Further fields follow the image. Pictures and targets get the same part, masks too, by nearest pixel;
/// boxes and points move with it; values are unchanged. A mask is a PNG (palette indices, or grey bytes) or
/// raw. All image-like fields must have the image's size.
class DecodedDataset final : public DatasetView {
 public:
  /// Throws ArgumentError if the two transforms differ in size, or one is invalid.
  DecodedDataset(std::shared_ptr<const Dataset> store, const ImageTransform& training,
                 const ImageTransform& evaluation, std::uint64_t seed);
  /// The same transform for training and evaluation.
  DecodedDataset(std::shared_ptr<const Dataset> store, const ImageTransform& evaluation);

  const ImageSpec& spec() const override { return spec_; }
  std::vector<FieldSpec> fields() const override { return fields_; }
  ImageTransform resizing() const override { return evaluation_; }
  bool stages() const override {
    return spec_.channels <= kMaxResizedChannels && training_.interpolation != Resampling::bicubic &&
           evaluation_.interpolation != Resampling::bicubic;
  }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  std::int64_t read_in_epoch(std::int64_t index, std::int64_t epoch,
                             std::span<std::uint8_t> pixels) const override;
  void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const override;
  std::string check_sample(std::int64_t index) const override { return check_images(source(), index); }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  bool resident() const override { return false; }
  /// With the same transforms, whose `shorter_side` changes in proportion; of a square that becomes none, to
  /// `crop_share`.
  std::shared_ptr<const Dataset> with_size(std::int64_t height, std::int64_t width) const override;

 private:
  void read_image(ImageReader& reader, const StoredSample& sample, const ImageTransform& transform,
                  const DrawKey& key, SampleRow& row) const;
  void decode_image(ImageReader& reader, const StoredSample& sample, const ImageTransform& transform,
                    const DrawKey& key, SampleRow& row) const;
  std::int64_t transformed(const ImageTransform& transform, const DrawKey& key,
                           std::span<std::uint8_t> pixels) const;
  /// Calls read(sample); errors name it. Returns its label.
  template <class F> std::int64_t with_sample(std::int64_t index, const F& read) const;

  ImageTransform training_, evaluation_;
  std::uint64_t seed_;
  ImageSpec spec_;
  std::vector<FieldSpec> fields_;
};

}  // namespace athanor
