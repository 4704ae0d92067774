#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace athanor {

/// What every image of a data set looks like: height x width pixels of `channels` bytes, in one of `classes`.
struct ImageSpec {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t classes = 0;

  /// Bytes of one image.
  std::int64_t bytes() const { return height * width * channels; }
  bool operator==(const ImageSpec&) const = default;
};

/// How the bytes of a field are to be read.
enum class Codec : std::uint8_t {
  raw = 0,  ///< [H, W, C] u8, dense
  jpeg = 1,
  png = 2,
  webp = 3,
};

/// "raw", "jpeg", "png" or "webp".
const char* name_of(Codec codec);

/// What becomes of a field while samples are prepared for a network.
enum class FieldKind : std::uint8_t {
  values,   ///< any dtype and shape, as they are
  picture,  ///< u8 [H, W, C] like the image: cropped, mirrored, recoloured and normalised with it
  target,   ///< u8 [H, W, 1 to 4]: cropped and mirrored with the image, then bytes / 255
  mask,     ///< u8 [H, W], a class for each pixel: cropped and mirrored; 255 where nothing is known
  boxes,    ///< f32 [K, 4], x0 y0 x1 y1 in pixels: moved and clipped; 0 0 0 0 where nothing is left
  points,   ///< f32 [K, 2], x y in pixels: moved; outside the image, too
};

/// "values", "picture", ...
const char* name_of(FieldKind kind);

/// One thing of every sample: its name, and what it is once it is decoded.
struct FieldSpec {
  std::string name;  ///< "image", "label"; a mask or boxes where a data set has them
  DType dtype = DType::u8;
  Shape shape = {};  ///< of one sample; a side of 0 differs from sample to sample
  FieldKind kind = FieldKind::values;

  std::int64_t bytes() const { return shape.numel() * static_cast<std::int64_t>(size_of(dtype)); }
  bool operator==(const FieldSpec&) const = default;
};

class SampleRow;

/// The epoch of samples that are read to be evaluated, not to be trained on.
inline constexpr std::int64_t kEvaluation = -1;

/// A field of one sample, as it is stored.
struct StoredField {
  std::span<const std::byte> bytes;
  Codec codec = Codec::raw;
  /// Of raw ones; 0 where only the encoded bytes know.
  std::int64_t height = 0, width = 0, channels = 0;
};

/// One sample as it is stored: its image, as StoredField has it, its label and, in the order of
/// Dataset::fields(), what else it has.
struct StoredSample {
  std::span<const std::byte> bytes;
  Codec codec = Codec::raw;
  std::int64_t height = 0, width = 0, channels = 0;
  std::int64_t label = 0;
  std::span<const StoredField> more = {};

  /// Bytes of all fields.
  std::int64_t stored_bytes() const;
};

/// Samples in a fixed order: in memory, in a file, in a folder, or made up. Who has images of one size and
/// no file derives from ImageDataset, which asks for less, or from FieldDataset (data/sample_row.h).
class Dataset {
 public:
  Dataset() = default;
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  /// How many samples there are.
  virtual std::int64_t size() const = 0;
  /// Height, width and channels where all images have one size when they are read, else 0, 0, 0; and the
  /// classes.
  virtual const ImageSpec& spec() const = 0;
  /// What a sample consists of. Here: {"image", u8 [H, W, C], picture} and {"label", i64 []}.
  virtual std::vector<FieldSpec> fields() const;
  /// A name for each class, or nothing where there are none.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// How an image of another size becomes one of these when it is evaluated: scaled until its shorter side
  /// has so many pixels, and the middle cut out; 0: until it covers height x width.
  virtual std::int64_t shorter_side() const { return 0; }

  /// Sample `index` in [0, size()) as it is stored. Its bytes are valid until the next fetch() with the same
  /// `scratch`, which they may lie in; a data set that maps its file leaves it alone. Thread-safe, with a
  /// scratch of each thread's own. Throws IoError naming file and offset where it cannot.
  virtual StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const = 0;
  /// The label of sample `index`. Here: what fetch() gives; a data set that knows it without overrides it.
  virtual std::int64_t label(std::int64_t index) const;
  /// Writes image `index`, row by row, channels last, into `pixels` (spec().bytes() long), and returns its
  /// label in [0, classes). Thread-safe. Throws IoError naming the file when it cannot, ArgumentError where
  /// images have no one size.
  virtual std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const;
  /// The image as training sees it in `epoch`. A data set whose images are drawn anew each time (random
  /// crops) overrides it; what is drawn is a function of its seed, the epoch and the index alone. Else:
  /// read().
  virtual std::int64_t read_in_epoch(std::int64_t index, std::int64_t /*epoch*/,
                                     std::span<std::uint8_t> pixels) const {
    return read(index, pixels);
  }
  /// All fields of a sample, into the memory of a batch. Here: read(), or, in an `epoch` other than
  /// kEvaluation, read_in_epoch(); of a set with more than image and label, what fetch() gives, which must be
  /// raw. Thread-safe. Throws what they do, and IoError naming a field that is missing or of another size.
  virtual void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const;

  /// Where sample `index` comes from, for messages: "FILE", "FILE, offset N", or nothing.
  virtual std::string where(std::int64_t /*index*/) const { return {}; }
  /// True where neither files are read nor anything is decompressed: a loader then needs no threads.
  virtual bool resident() const { return false; }
  /// Says that samples [first, first + count) will be read soon. Thread-safe.
  virtual void will_need(std::int64_t /*first*/, std::int64_t /*count*/) const {}
};

/// Labelled images of one size, read one at a time: what a user writes to train on data of their own.
class ImageDataset : public Dataset {
 public:
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override = 0;
  /// What read() writes, raw.
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
};

}  // namespace athanor
