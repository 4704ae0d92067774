#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/image/transform.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace athanor {

/// The form of every image of a data set: height x width pixels of `channels` bytes, in one of `classes`.
struct ImageSpec {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t classes = 0;

  /// Bytes of one image.
  std::int64_t bytes() const { return height * width * channels; }
  bool operator==(const ImageSpec&) const = default;
};

/// The encoding of a field's bytes.
enum class Codec : std::uint8_t {
  raw = 0,  ///< [H, W, C] u8, dense
  jpeg = 1,
  png = 2,
  webp = 3,
};

/// "raw", "jpeg", "png" or "webp".
const char* name_of(Codec codec);

/// How a field is prepared for a network.
enum class FieldKind : std::uint8_t {
  values,   ///< any dtype and shape, unchanged
  picture,  ///< u8 [H, W, C] like the image: cropped, mirrored, recoloured, normalised
  target,   ///< u8 [H, W, 1 to 4]: cropped and mirrored with the image, then bytes / 255
  mask,     ///< u8 [H, W], a class per pixel: cropped and mirrored; 255: unknown
  boxes,    ///< f32 [K, 4], x0 y0 x1 y1 in pixels: moved and clipped; 0 0 0 0 if empty
  points,   ///< f32 [K, 2], x y in pixels: moved, possibly outside the image
};

/// "values", "picture", ...
const char* name_of(FieldKind kind);

/// A field of every sample: its name, and its decoded form.
struct FieldSpec {
  std::string name;  ///< "image", "label"; a mask or boxes if the data set has them
  DType dtype = DType::u8;
  Shape shape = {};  ///< of one sample; a side of 0 varies between samples
  FieldKind kind = FieldKind::values;

  std::int64_t bytes() const { return shape.numel() * static_cast<std::int64_t>(size_of(dtype)); }
  bool operator==(const FieldSpec&) const = default;
};

class SampleRow;

/// The epoch number for reading samples in evaluation, not training.
inline constexpr std::int64_t kEvaluation = -1;

/// A field of one sample in stored form.
struct StoredField {
  std::span<const std::byte> bytes;
  Codec codec = Codec::raw;
  /// For raw fields; 0 if only the encoded bytes contain it.
  std::int64_t height = 0, width = 0, channels = 0;
};

/// A sample in stored form: its image, as in StoredField, its label and, in the order of Dataset::fields(),
/// its other fields.
struct StoredSample {
  std::span<const std::byte> bytes;
  Codec codec = Codec::raw;
  std::int64_t height = 0, width = 0, channels = 0;
  std::int64_t label = 0;
  std::span<const StoredField> more = {};

  /// Bytes of all fields.
  std::int64_t stored_bytes() const;
};

/// What a source holds and its data set does not use, of one cause.
struct Unused {
  std::string cause;  ///< "files of another type"
  std::int64_t count = 0;
  std::vector<std::string> names;  ///< the first three in byte order

  bool operator==(const Unused&) const = default;
};

/// Adds one of that cause.
void count_unused(std::vector<Unused>& all, std::string_view cause, std::string name);
/// Adds those of another list, cause by cause.
void add_unused(std::vector<Unused>& all, const std::vector<Unused>& more);
/// "20 files of another type (bird/1.bmp, bird/2.bmp, bird/3.bmp, ...), 1 hidden file or folder (.git)";
/// empty for none. Names are printable.
std::string text_of(const std::vector<Unused>& unused);

/// Samples in a fixed order: in memory, a file, a folder, or synthetic. For images of one size without a
/// file, derive from ImageDataset, which needs fewer functions, or from FieldDataset (data/sample_row.h).
class Dataset {
 public:
  Dataset() = default;
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  /// Number of samples.
  virtual std::int64_t size() const = 0;
  /// Height, width and channels if all images have one size when read, else 0, 0, 0; and the number of
  /// classes.
  virtual const ImageSpec& spec() const = 0;
  /// The fields of a sample. Here: {"image", u8 [H, W, C], picture} and {"label", i64 []}.
  virtual std::vector<FieldSpec> fields() const;
  /// A name for each class; empty without classes.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// How evaluation resizes another image to this data set's size. Here: scales it until it covers height x
  /// width, and crops the centre.
  virtual ImageTransform resizing() const { return {.height = spec().height, .width = spec().width}; }

  /// Sample `index` in [0, size()) in stored form. Its bytes may be in `scratch` and are valid until the next
  /// fetch() with the same `scratch`; a data set in memory does not use it. Thread-safe with one scratch per
  /// thread. Throws IoError naming file and offset.
  virtual StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const = 0;
  /// The label of sample `index`. Here: from fetch(); override it if the label is available without.
  virtual std::int64_t label(std::int64_t index) const;
  /// The numbers of a field of the kind `values`, of all samples in order: [size(), field's shape]; NaN of a
  /// sample that cannot be read (data/defects.h: is_unreadable()). Throws ArgumentError if there is no such
  /// field. Here: from fetch(); override it if they are available without.
  virtual std::vector<double> numbers(std::string_view field) const;
  /// Writes image `index`, row by row, channels last, into `pixels` (spec().bytes() long), and returns its
  /// label in [0, classes). Thread-safe. Throws IoError naming the file, and ArgumentError if images vary in
  /// size.
  virtual std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const;
  /// The image for training in `epoch`. Override it for images that are drawn anew in each epoch (random
  /// crops), depending only on the data set's seed, epoch and index. Here:
  /// read().
  virtual std::int64_t read_in_epoch(std::int64_t index, std::int64_t /*epoch*/,
                                     std::span<std::uint8_t> pixels) const {
    return read(index, pixels);
  }
  /// The same samples, read with images of another size; null if this set cannot change it. The result may
  /// outlive this set.
  virtual std::shared_ptr<const Dataset> with_size(std::int64_t /*height*/, std::int64_t /*width*/) const {
    return nullptr;
  }
  /// Writes all fields of a sample into the memory of a batch. Here: read(), or read_in_epoch() in an `epoch`
  /// other than kEvaluation; with more fields than image and label, fetch(), which must be raw. Thread-safe.
  /// Throws what they throw, and IoError naming a field that is missing or of another size.
  virtual void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const;

  /// Reads all of sample `index` in stored form, only to find defects. Thread-safe. Throws what reading
  /// throws; returns a defect that leaves every pixel as it is, after the name of its source, or "". Here:
  /// fetch().
  virtual std::string check_sample(std::int64_t index) const;
  /// What sample `index` is, as far as its source knows soon: a hash of its name, label and, unless the set
  /// is large, stored bytes (their count, the first ones, or a checksum of all). Equal whenever the same data
  /// is opened. Here: the index.
  virtual std::uint64_t sample_id(std::int64_t index) const { return static_cast<std::uint64_t>(index); }
  /// What the source holds besides its samples.
  virtual std::vector<Unused> unused() const { return {}; }
  /// The data set whose source this one shares: of a part or a view of a set, that set's. Its account is
  /// theirs.
  virtual const Dataset& origin() const { return *this; }
  /// Which sample of origin() sample `index` is.
  virtual std::int64_t origin_index(std::int64_t index) const { return index; }
  /// Of an origin(): the number of bytes that fetch() returns as the image of sample `index`, if it comes
  /// from a file; else nullopt. Thread-safe. Throws what fetch() throws. Here: nullopt.
  virtual std::optional<std::int64_t> image_bytes(std::int64_t /*index*/) const { return std::nullopt; }
  /// The source of sample `index`, for messages: "FILE", "FILE, offset N", or "".
  virtual std::string where(std::int64_t /*index*/) const { return {}; }
  /// Whether read_fields() can leave the scaling of images to a GPU (SampleRow::stage()).
  virtual bool stages() const { return false; }
  /// True if reading needs neither files nor decompression: a loader then needs no threads.
  virtual bool resident() const { return false; }
  /// Announces that samples [first, first + count) will be read soon. Thread-safe.
  virtual void will_need(std::int64_t /*first*/, std::int64_t /*count*/) const {}
};

/// Identifies the samples of a data set, their order and their classes: a hash of all sample_id().
std::uint64_t data_id(const Dataset& data);

/// Labelled images of one size, read one at a time: the base class for users' own data.
class ImageDataset : public Dataset {
 public:
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override = 0;
  /// The result of read(), raw.
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
};

}  // namespace athanor
