#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/image/decoder.h"
#include "data/image/resize.h"
#include "kernels/augment.h"

// Which part of an image becomes a sample, and how large. This is what a decoder can save work by; what
// happens to each pixel (flip, colours, cutout, normalisation) is kernels::augment, on the device.

namespace athanor {

/// Of images that are brought to another size.
inline constexpr std::int64_t kMaxResizedChannels = 4;

/// What a draw is a function of.
struct DrawKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0, sample = 0;
};

Box draw(const RandomResizedCrop& crop, const ImageSize& size, const DrawKey& key);

/// An image of any size to one of height x width.
struct ImageTransform {
  std::int64_t height = 224, width = 224;
  /// Scales a random part to that size.
  std::optional<RandomResizedCrop> random_crop = {};
  /// Without: the shorter side is scaled to so many pixels, the longer one in proportion, and the middle cut
  /// out. 0: as small as covers height x width.
  std::int64_t shorter_side = 0;

  bool operator==(const ImageTransform&) const = default;
};

/// "random part of 8 to 100 %, 224x224": for messages and settings.
std::string describe(const ImageTransform& transform);
/// Throws ArgumentError where a transform cannot be.
void check(const ImageTransform& transform);

/// Where the pixels of a result come from, in pixels of the whole, upright image.
struct Placement {
  Window rows, columns;
};
Placement place(const ImageTransform& transform, const ImageSize& size, const DrawKey& key);

/// Throws IoError where a field that goes with an image has another size.
void must_have_size(const ImageSize& image, const ImageSize& field);

/// Decodes samples and brings them to one size. Decodes no more than the part that is wanted and, where that
/// is drawn and is to shrink twice or more, not all its pixels (see JpegDecoder::decode). Photos that a
/// camera held sideways are turned upright. For one thread at a time: once its memory has grown to the
/// largest image, it allocates none of its own.
class ImageReader {
 public:
  /// Writes the sample's height x width pixels of `channels` to `out`. Encoded images have 3 channels; raw
  /// ones as many as asked for, or 1 that becomes 3. Throws IoError that does not name the sample.
  void read(const StoredSample& sample, const ImageTransform& transform, const DrawKey& key,
            std::int64_t channels, std::span<std::uint8_t> out);

  /// The same in two steps. open() gives the size of the upright image; the sample's bytes must stay. read()
  /// comes once after it, and decodes fewer pixels than there are where `reduces` and the scale allow it.
  ImageSize open(const StoredSample& sample);
  void read(const Placement& at, const ImageSize& wanted, bool reduces, std::int64_t channels,
            std::span<std::uint8_t> out);
  /// As read(), of a mask: the nearest pixel's class, which is what a palette's pixels or bytes of grey are.
  /// Throws IoError of a JPEG, or where a raw one has several channels.
  void read_nearest(const Placement& at, const ImageSize& wanted, std::span<std::uint8_t> out);
  /// Decodes all of a sample that is encoded, for its defects alone: of each of its `fields` what is no
  /// number must be an image of the same size, and a mask one that read_nearest() takes. Throws IoError that
  /// names the field beside the image, and not the sample.
  void check(const StoredSample& sample, std::span<const FieldSpec> fields = {});

 private:
  ImageView classes();
  ImageSize decode_all(const StoredSample& sample, bool mask);
  void read_raw(const Placement& at, const Box& box, const ImageSize& result, std::int64_t channels,
                std::span<std::uint8_t> out);

  ImageDecoder decoder_;
  Resizer resize_;
  StoredSample sample_;
  ImageSize size_;                    // as it is stored
  Orientation turned_;                // of that
  std::vector<std::uint8_t> stored_;  // a result before it is turned
};

}  // namespace athanor
