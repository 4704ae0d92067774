#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "data/dataset.h"

namespace athanor {

/// The kind of that name, if it is one.
std::optional<FieldKind> field_kind_named(std::string_view name);

/// Where the fields of `rows` samples lie in one piece of memory: labels, numbers of the samples, images, and
/// then the others, each from a multiple of 64 bytes on. The rows of a field lie side by side.
struct RowLayout {
  static constexpr std::size_t kMostFields = 16;  ///< beside image and label

  /// Of fields that check_fields() has nothing against.
  RowLayout(std::vector<FieldSpec> of, std::int64_t rows);

  struct Place {
    std::int64_t at = 0, bytes = 0;  ///< where its rows begin, and of one row
  };
  std::vector<FieldSpec> fields;
  std::vector<Place> places;  ///< of the fields
  std::int64_t rows = 0;
  std::int64_t bytes = 0;                          ///< of all, a multiple of 64
  std::size_t image = SIZE_MAX, label = SIZE_MAX;  ///< which of the fields they are, if any

  /// Where the first `count` rows of all fields end.
  std::int64_t end_of(std::int64_t count) const { return places[last_].at + count * places[last_].bytes; }
  /// How many fields there are beside image and label.
  std::size_t others() const { return fields.size() - (label == SIZE_MAX ? 1 : 2); }
  /// The field of a name. Throws ArgumentError, naming what there is.
  std::size_t index_of(std::string_view name) const;

 private:
  std::size_t last_ = 0;  // in memory
};

/// Throws ArgumentError on samples without an image or with too many fields, and on fields without a name of
/// their own, one of UTF-8 and of one line.
void check_field_names(const std::vector<FieldSpec>& fields);
/// The same, and on fields that are not what their kind says or have no one size; on a label that is no i64.
void check_fields(const std::vector<FieldSpec>& fields);

/// The fields of one sample in memory, each of its fixed size: what a data set writes.
class SampleRow {
 public:
  SampleRow(const RowLayout& layout, std::byte* memory, std::int64_t row)
      : layout_(&layout), memory_(memory), row_(row) {}

  /// The elements of a field, dense: of a mask [H, W], H * W bytes. Throws ArgumentError where there is no
  /// such field, or its dtype is another.
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
  std::int64_t label() const;
  void set_label(std::int64_t label);

  const RowLayout& layout() const { return *layout_; }
  /// Field `field` of layout().fields, which counts as written.
  std::span<std::byte> bytes(std::size_t field) {
    written_ |= std::uint32_t{1} << field;
    const RowLayout::Place& place = layout_->places[field];
    return {memory_ + place.at + row_ * place.bytes, static_cast<std::size_t>(place.bytes)};
  }
  /// Copies a field. Throws IoError, naming it, where `from` has another size.
  void set(std::size_t field, std::span<const std::byte> from);
  /// Throws IoError where a field has not been written, naming it.
  void check_written() const {
    if (written_ != (std::uint32_t{1} << layout_->fields.size()) - 1) fail_unwritten();
  }

 private:
  [[noreturn]] void fail_unwritten() const;
  void check_dtype(std::size_t field, DType dtype) const;

  const RowLayout* layout_;
  std::byte* memory_;
  std::int64_t row_;
  std::uint32_t written_ = 0;
};

/// What read_fields() of a data set writes to be evaluated, as raw fields in `scratch`.
StoredSample fetch_row(const Dataset& data, std::int64_t index, std::vector<std::byte>& scratch);

/// Samples of several fields, written one at a time: what a user writes to train on masks, points or targets
/// of their own.
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
  /// `more`: the fields beside the image and, where there are classes, the label.
  FieldDataset(const ImageSpec& image, std::vector<FieldSpec> more);

  /// Writes all fields of sample `index` as training sees them in `epoch`, or as kEvaluation does. A function
  /// of the arguments alone, and thread-safe.
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
