#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/image/decoder.h"
#include "data/image/resize.h"
#include "data/image/transform.h"

namespace athanor {

/// The source of a result's pixels, in pixels of the whole, upright image.
struct Placement {
  Window rows, columns;
  std::uint8_t padding = 0;  ///< the byte of pixels without a source
};
Placement place(const ImageTransform& transform, const ImageSize& size, const DrawKey& key);

/// A decoded part of an image, which is still to be scaled and turned upright.
struct ImagePart {
  ImageView pixels;
  Placement at;        ///< of the stored result, in pixels of the part
  ImageSize result;    ///< as stored
  Orientation turned;  ///< its orientation

  /// For kernels::resize_images.
  kernels::StagedImage staged() const;
};

/// Throws IoError if a field that belongs to an image has another size.
void must_have_size(const ImageSize& image, const ImageSize& field);

/// Decodes samples and transforms them to one size. Decodes only the required part and, if a random part
/// shrinks by two or more, not all its pixels (see JpegDecoder::decode). Turns images upright by their
/// metadata (exif_orientation()). For one thread at a time: allocates nothing itself once its memory has
/// grown to the largest image.
class ImageReader {
 public:
  /// Writes the sample's height x width pixels of `channels` to `out`. Encoded images have 3 channels; raw
  /// ones have the requested number, or 1 that becomes 3. Throws IoError without naming the sample.
  void read(const StoredSample& sample, const ImageTransform& transform, const DrawKey& key,
            std::int64_t channels, std::span<std::uint8_t> out);

  /// The same in two steps. open() returns the size of the upright image; the sample's bytes must stay valid.
  /// Then read() once; with `reduces`, it decodes fewer pixels if the scale allows.
  ImageSize open(const StoredSample& sample);
  void read(const Placement& at, const ImageSize& wanted, bool reduces, std::int64_t channels,
            std::span<std::uint8_t> out) {
    scale(part(at, wanted, reduces, channels), channels, out);
  }
  /// That read() in two steps: decodes what it needs, valid until the reader's next call; and scales that.
  ImagePart part(const Placement& at, const ImageSize& wanted, bool reduces, std::int64_t channels);
  void scale(const ImagePart& part, std::int64_t channels, std::span<std::uint8_t> out);
  /// The whole image as a part without pixels, if a GPU can decode it (JpegDecoder::is_plain()).
  std::optional<ImagePart> undecoded(const Placement& at, const ImageSize& wanted) const;
  /// Size of the image it read last, as stored. Its memory has grown to the largest of them.
  const ImageSize& stored_size() const { return size_; }
  /// Whether read() only copies the sample, because it is raw and needs neither cropping nor scaling.
  static bool copies(const StoredSample& sample, const ImageTransform& transform, std::int64_t channels);
  /// As read(), for a mask: the nearest pixel's class, a palette index or grey byte; 255 for padding, which
  /// cross_entropy ignores. Throws IoError on a
  /// JPEG, or a raw mask with several channels.
  void read_nearest(const Placement& at, const ImageSize& wanted, std::span<std::uint8_t> out);
  /// Decodes a whole encoded sample, only to find defects. Of its `fields`, those that are not numbers must
  /// be images of the same size, and masks must be readable by read_nearest(). Throws IoError naming the
  /// field besides the image, but not the sample. Returns warning() of the image.
  std::string check(const StoredSample& sample, std::span<const FieldSpec> fields = {});
  /// ImageDecoder::warning() of the sample that was read last; empty for raw ones.
  std::string_view warning() const {
    return sample_.codec == Codec::raw ? std::string_view() : decoder_.warning();
  }

 private:
  ImageView classes();
  ImageSize decode_all(const StoredSample& sample, bool mask);
  ImageView raw_part(const Box& box, std::int64_t channels) const;

  ImageDecoder decoder_;
  Resizer resize_;
  StoredSample sample_;
  ImageSize size_;                    // as stored
  Orientation turned_;                // its orientation
  std::vector<std::uint8_t> stored_;  // a result before it is turned, or a mask after
};

}  // namespace athanor
