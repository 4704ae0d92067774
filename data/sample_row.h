#pragma once  // Explained in docs/feeding_the_furnace.md.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "tensor/tensor.h"

namespace athanor {

class PixelStage;
namespace kernels {
struct StagedImage;
}

/// The kind of that name, if any.
std::optional<FieldKind> field_kind_named(std::string_view name);

/// Memory layout of the fields of `rows` samples in one block: labels, sample numbers, images, then the
/// others, each aligned to 64 bytes. The rows of a field are contiguous.
struct RowLayout {
  static constexpr std::size_t kMaxFields = 16;  ///< besides image and label

  /// For fields accepted by check_fields().
  RowLayout(std::vector<FieldSpec> of, std::int64_t rows);

  struct Position {
    std::int64_t at = 0, bytes = 0;  ///< offset of its rows, and bytes per row
  };
  std::vector<FieldSpec> fields;
  std::vector<Position> places;  ///< of the fields
  std::int64_t rows = 0;
  std::int64_t bytes = 0;                          ///< of all fields, a multiple of 64
  std::size_t image = SIZE_MAX, label = SIZE_MAX;  ///< their indices in `fields`, if any

  /// The end of the first `count` rows of all fields.
  std::int64_t end_of(std::int64_t count) const { return places[last_].at + count * places[last_].bytes; }
  /// Number of fields besides image and label.
  std::size_t others() const { return fields.size() - (label == SIZE_MAX ? 1 : 2); }
  /// The index of a field. Throws ArgumentError listing the available names.
  std::size_t index_of(std::string_view name) const;

 private:
  std::size_t last_ = 0;  // in memory
};

/// Throws ArgumentError on samples without an image or with too many fields, and on field names that are not
/// unique, one line and UTF-8.
void check_field_names(const std::vector<FieldSpec>& fields);
/// The same, and on fields that do not match their kind or vary in size; on a label that is not i64.
void check_fields(const std::vector<FieldSpec>& fields);

/// Writes the fields of one sample to memory, each of fixed size: for data sets.
class SampleRow {
 public:
  /// `stage`: the image may be left there, `files`: as a file, too; null: it may not.
  SampleRow(const RowLayout& layout, std::byte* memory, std::int64_t row, PixelStage* stage = nullptr,
            bool files = false)
      : layout_(&layout), memory_(memory), stage_(stage), row_(row), stages_files_(files) {}

  /// The elements of a field, dense: for a mask [H, W], H * W bytes. Throws ArgumentError if there is no such
  /// field, or its dtype differs.
  template <class T> std::span<T> get(std::string_view name) {
    const std::size_t field = layout_->index_of(name);
    check_dtype(field, dtype_of<T>);
    const std::span<std::byte> all = bytes(field);
    return {reinterpret_cast<T*>(all.data()), all.size() / sizeof(T)};
  }
  std::span<std::uint8_t> image() {
    const std::span<std::byte> all = bytes(layout_->image);
    return {reinterpret_cast<std::uint8_t*>(all.data()), all.size()};
  }
  /// Memory for an image that a GPU scales: `image`'s pixels, in place of image(). Null if the host must
  /// scale it.
  std::uint8_t* stage(const kernels::StagedImage& image);
  /// The same for a JPEG file that the GPU decodes first: false if the host must.
  bool stage_file(const kernels::StagedImage& image, std::span<const std::byte> file,
                  void (*decoder)(std::span<const std::byte> file, std::uint8_t* to));
  /// Whether stage() may give memory, and stage_file() take files.
  bool stages() const { return stage_ != nullptr; }
  bool stages_files() const { return stages_files_; }
  std::int64_t label() const;
  void set_label(std::int64_t label);
  /// A defect of the sample that leaves every pixel as it is; empty: none.
  const std::string& warning() const { return warning_; }
  void set_warning(std::string_view text) { warning_ = text; }

  const RowLayout& layout() const { return *layout_; }
  /// Field `field` of layout().fields; marks it as written.
  std::span<std::byte> bytes(std::size_t field) {
    written_ |= std::uint32_t{1} << field;
    if (stage_ && field == layout_->image) complete_image();
    const RowLayout::Position& place = layout_->places[field];
    return {memory_ + place.at + row_ * place.bytes, static_cast<std::size_t>(place.bytes)};
  }
  /// Copies a field. Throws IoError naming it if `from` has another size.
  void set(std::size_t field, std::span<const std::byte> from);
  /// Throws IoError naming a field that has not been written.
  void check_written() const {
    if (written_ != (std::uint32_t{1} << layout_->fields.size()) - 1) fail_unwritten();
  }

 private:
  [[noreturn]] void fail_unwritten() const;
  void complete_image();
  void check_dtype(std::size_t field, DType dtype) const;

  const RowLayout* layout_;
  std::byte* memory_;
  PixelStage* stage_;
  std::int64_t row_;
  std::uint32_t written_ = 0;
  bool stages_files_;
  std::string warning_ = {};
};

/// The result of read_fields() for evaluation, as raw fields in `scratch`.
StoredSample fetch_row(const Dataset& data, std::int64_t index, std::vector<std::byte>& scratch);

/// Samples with several fields, written one at a time: the base class for users' own masks, points or
/// targets.
///
///     struct Discs : FieldDataset {
///       Discs() : FieldDataset({.height = 32, .width = 32, .channels = 1},
///                              {{"mask", DType::u8, {32, 32}, FieldKind::mask}, {"radius", DType::f32}}) {}
///       std::int64_t size() const override { return 1000; }
///       void read_fields(std::int64_t index, std::int64_t, SampleRow& row) const override {
///         row.get<float>("radius")[0] = draw(index, row.image(), row.get<std::uint8_t>("mask"));
///       }
///     };
class FieldDataset : public Dataset {
 public:
  /// `more`: the fields besides the image and, with classes, the label.
  FieldDataset(const ImageSpec& image, std::vector<FieldSpec> more);

  /// Writes all fields of sample `index` for training in `epoch`, or for evaluation (kEvaluation). Must
  /// depend only on the arguments, and be thread-safe.
  void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const override = 0;

  const ImageSpec& spec() const final { return image_; }
  std::vector<FieldSpec> fields() const final { return fields_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const final;
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const final;
  std::int64_t read_in_epoch(std::int64_t index, std::int64_t epoch,
                             std::span<std::uint8_t> pixels) const final;

 private:
  ImageSpec image_;
  std::vector<FieldSpec> fields_;
};

}  // namespace athanor
