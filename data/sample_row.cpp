#include "data/sample_row.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/ranges.h>

#include "data/detail/thread_scratch.h"
#include "data/pixel_stage.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor {
namespace {

constexpr const char* kKinds[] = {"values", "picture", "target", "mask", "boxes", "points"};

std::string describe(const FieldSpec& field) {
  return fmt::format("{} {}", name_of(field.dtype), field.shape);
}

/// Checks a field against its kind; the image itself is a picture.
void check_kind(const FieldSpec& field, const FieldSpec& image) {
  const Shape &shape = field.shape, &whole = image.shape;
  const bool spatial = shape.rank() >= 2 && shape[0] == whole[0] && shape[1] == whole[1];
  const bool bytes = field.dtype == DType::u8, floats = field.dtype == DType::f32 && shape.rank() == 2;
  const auto must = [&](bool holds, const std::string& what) {
    ATH_CHECK(holds, "fields: {} '{}' must be {}, but is {}", name_of(field.kind), field.name, what,
              describe(field));
  };
  switch (field.kind) {
    case FieldKind::values: return;
    case FieldKind::picture: return must(bytes && shape == whole, describe(image) + " like the image");
    case FieldKind::target:
      return must(bytes && spatial && shape.rank() == 3 && shape[2] <= 4,
                  fmt::format("u8 [{}, {}, 1 to 4]", whole[0], whole[1]));
    case FieldKind::mask:
      return must(bytes && spatial && shape.rank() == 2, fmt::format("u8 [{}, {}]", whole[0], whole[1]));
    case FieldKind::boxes: return must(floats && shape[1] == 4, "f32 [K, 4]");
    case FieldKind::points: return must(floats && shape[1] == 2, "f32 [K, 2]");
  }
}

}  // namespace

const char* name_of(FieldKind kind) {
  return kKinds[static_cast<std::size_t>(kind)];
}

std::optional<FieldKind> field_kind_named(std::string_view name) {
  const auto* const at = std::find(std::begin(kKinds), std::end(kKinds), name);
  if (at == std::end(kKinds)) return std::nullopt;
  return static_cast<FieldKind>(at - std::begin(kKinds));
}

void check_field_names(const std::vector<FieldSpec>& fields) {
  const auto count = [&](const std::string& name) {
    return std::ranges::count(fields, name, &FieldSpec::name);
  };
  ATH_CHECK(count("image") > 0, "fields: samples must have an 'image', u8 [H, W, C]");
  for (const FieldSpec& field : fields) {
    const std::string& name = field.name;
    ATH_CHECK(printable(name) == name, "fields: a name must be UTF-8 without control characters, but is '{}'",
              printable(name));
    ATH_CHECK(!name.empty() && count(name) == 1,
              "fields: names must be unique and not empty, but '{}' is not", name);
  }
  const std::size_t others = fields.size() - (count("label") == 0 ? 1 : 2);
  ATH_CHECK(others <= RowLayout::kMaxFields,
            "fields: samples must have at most {} besides image and label, but have {}: put several numbers "
            "into one field",
            RowLayout::kMaxFields, others);
}

void check_fields(const std::vector<FieldSpec>& fields) {
  check_field_names(fields);
  const FieldSpec& image = *std::ranges::find(fields, "image", &FieldSpec::name);
  for (const FieldSpec& field : fields) {
    ATH_CHECK(field.name != "image" || (field.dtype == DType::u8 && field.shape.rank() == 3),
              "fields: 'image' must be u8 [H, W, C], but is {}", describe(field));
    ATH_CHECK(field.name != "label" || (field.dtype == DType::i64 && field.shape.rank() == 0),
              "fields: 'label' must be i64 [], but is {}: numbers of another dtype need another name",
              describe(field));
    ATH_CHECK(std::all_of(field.shape.begin(), field.shape.end(), [](auto side) { return side > 0; }),
              "fields: '{}' must have one size, but has {}: resize pictures with a DecodedDataset",
              field.name, field.shape);
  }
  for (const FieldSpec& field : fields) check_kind(field, image);
}

RowLayout::RowLayout(std::vector<FieldSpec> of, std::int64_t count)
    : fields(std::move(of)), places(fields.size()), rows(count) {
  bytes = rows * 16;
  const auto place = [&](std::size_t field) {
    places[field] = {bytes, fields[field].bytes()};
    last_ = field;
    bytes += rows * places[field].bytes;
  };
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].name == "label") label = i;
    if (fields[i].name == "image") place(image = i);
  }
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i == image || i == label) continue;
    bytes = (bytes + 63) / 64 * 64;
    place(i);
  }
  if (label != SIZE_MAX) places[label] = {0, 8};
  bytes = (bytes + 63) / 64 * 64;
}

std::size_t RowLayout::index_of(std::string_view name) const {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].name == name) return i;
  }
  std::vector<std::string_view> names;
  for (const FieldSpec& field : fields) names.push_back(field.name);
  detail::fail<>("fields: name must be one of '{}', but is '{}'", fmt::join(names, "', '"), name);
}

std::int64_t SampleRow::label() const {
  std::int64_t label = 0;
  if (layout_->label != SIZE_MAX) std::memcpy(&label, memory_ + row_ * 8, sizeof(label));
  return label;
}

void SampleRow::set_label(std::int64_t label) {
  if (layout_->label != SIZE_MAX) std::memcpy(bytes(layout_->label).data(), &label, sizeof(label));
}

void SampleRow::complete_image() {
  stage_->complete(row_);
}

std::uint8_t* SampleRow::stage(const kernels::StagedImage& image) {
  std::uint8_t* const to = stage_ ? stage_->take(row_, image) : nullptr;
  if (to) written_ |= std::uint32_t{1} << layout_->image;
  return to;
}

bool SampleRow::stage_file(const kernels::StagedImage& image, std::span<const std::byte> file,
                           void (*decoder)(std::span<const std::byte>, std::uint8_t*)) {
  if (!stages_files_ || !stage_->take_file(row_, image, file, decoder)) return false;
  written_ |= std::uint32_t{1} << layout_->image;
  return true;
}

void SampleRow::set(std::size_t field, std::span<const std::byte> from) {
  const std::span<std::byte> to = bytes(field);
  if (from.size() != to.size()) {
    const FieldSpec& spec = layout_->fields[field];
    detail::fail<IoError>("field '{}' must have {} bytes, {}, but has {}", spec.name, to.size(),
                          describe(spec), from.size());
  }
  if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
}

void SampleRow::fail_unwritten() const {
  const auto first = static_cast<std::size_t>(std::countr_one(written_));
  detail::fail<IoError>("field '{}' is missing: read_fields() did not set it", layout_->fields[first].name);
}

void SampleRow::check_dtype(std::size_t field, DType dtype) const {
  const FieldSpec& spec = layout_->fields[field];
  ATH_CHECK(spec.dtype == dtype, "fields: '{}' must be read as {}, but is read as {}", spec.name,
            name_of(spec.dtype), name_of(dtype));
}

// ----------------------------------------------------------------------------------------------------------

/// In `scratch`: one row, followed by the array for StoredSample::more.
StoredSample fetch_row(const Dataset& data, std::int64_t index, std::vector<std::byte>& scratch) {
  ATH_CHECK(index >= 0 && index < data.size(), "dataset: index must be in [0, {}), but got {}", data.size(),
            index);
  const RowLayout layout(data.fields(), 1);
  const auto bytes = static_cast<std::size_t>(layout.bytes);
  scratch.resize(bytes + layout.fields.size() * sizeof(StoredField));
  SampleRow row(layout, scratch.data(), 0);
  data.read_fields(index, kEvaluation, row);
  row.check_written();
  auto* const more = reinterpret_cast<StoredField*>(scratch.data() + bytes);
  std::size_t count = 0;
  StoredSample sample;
  sample.label = row.label();
  for (std::size_t i = 0; i < layout.fields.size(); ++i) {
    const Shape& shape = layout.fields[i].shape;
    const auto side = [&](int axis) { return axis < shape.rank() ? shape[axis] : 1; };
    if (i == layout.image) {
      sample.bytes = row.bytes(i);
      sample.height = side(0);
      sample.width = side(1);
      sample.channels = side(2);
    } else if (i != layout.label) {
      new (more + count++) StoredField{row.bytes(i), Codec::raw, side(0), side(1), side(2)};
    }
  }
  sample.more = {more, count};
  return sample;
}

FieldDataset::FieldDataset(const ImageSpec& image, std::vector<FieldSpec> more) : image_(image) {
  fields_.push_back({"image", DType::u8, {image.height, image.width, image.channels}, FieldKind::picture});
  if (image.classes > 0) fields_.push_back({"label", DType::i64});
  fields_.insert(fields_.end(), more.begin(), more.end());
  check_fields(fields_);
}

StoredSample FieldDataset::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  return fetch_row(*this, index, scratch);
}

std::int64_t FieldDataset::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  return read_in_epoch(index, kEvaluation, pixels);
}

std::int64_t FieldDataset::read_in_epoch(std::int64_t index, std::int64_t epoch,
                                         std::span<std::uint8_t> pixels) const {
  detail::ThreadScratch scratch;
  const RowLayout layout(fields_, 1);
  scratch.bytes().resize(static_cast<std::size_t>(layout.bytes));
  SampleRow row(layout, scratch.bytes().data(), 0);
  read_fields(index, epoch, row);
  const std::span<const std::uint8_t> image = row.image();
  ATH_CHECK(pixels.size() == image.size(), "dataset: an image has {} bytes, but the buffer has {}",
            image.size(), pixels.size());
  std::copy(image.begin(), image.end(), pixels.begin());
  return row.label();
}

}  // namespace athanor
