#include "data/detail/resident_images.h"

#include <algorithm>

#include "tensor/allocator.h"
#include "tensor/base/error.h"

namespace athanor::detail {
namespace {

std::vector<FieldSpec> without_pixels(std::vector<FieldSpec> fields) {
  for (FieldSpec& field : fields) {
    if (field.name == "image") field.shape = {0, 0, field.shape[2]};
  }
  return fields;
}

}  // namespace

ResidentImages::ResidentImages(const Dataset& source, Device device)
    : spec_{0, 0, source.spec().channels, source.spec().classes},
      others_(without_pixels(source.fields()), source.size()),
      memory_(static_cast<std::size_t>(others_.bytes)) {
  constexpr std::int64_t kPieceBytes = 4 << 20;
  const AllocTag named("data");
  const ImageSpec& whole = source.spec();
  const std::int64_t n = source.size(), bytes = whole.bytes();
  images_ = Tensor::empty({n, whole.height, whole.width, whole.channels}, {DType::u8, device});
  const std::int64_t most = std::clamp<std::int64_t>(kPieceBytes / bytes, 1, n);
  const RowLayout layout(source.fields(), most);
  const Tensor piece = Tensor::empty({layout.bytes}, {DType::u8, kCpu});
  for (std::int64_t first = 0; first < n; first += most) {
    const std::int64_t count = std::min(most, n - first);
    for (std::int64_t i = 0; i < count; ++i) {
      SampleRow from(layout, reinterpret_cast<std::byte*>(piece.data<std::uint8_t>()), i);
      SampleRow to(others_, memory_.data(), first + i);
      try {
        source.read_fields(first + i, kEvaluation, from);
        from.check_written();
      } catch (const IoError& error) {
        fail<IoError>("loader: sample {}: {}", first + i, error.what());
      }
      for (std::size_t field = 0; field < layout.fields.size(); ++field) {
        if (field != layout.image) to.set(field, from.bytes(field));
      }
    }
    images_.view_as_strided({count * bytes}, {1}, first * bytes)
        .copy_bytes_from(piece.view_as_strided({count * bytes}, {1}, layout.places[layout.image].at));
  }
}

StoredSample ResidentImages::fetch(std::int64_t index, std::vector<std::byte>& /*scratch*/) const {
  fail<>("loader: sample {} has no pixels on the host any more: they are on the device", index);
}

void ResidentImages::read_fields(std::int64_t index, std::int64_t /*epoch*/, SampleRow& row) const {
  SampleRow from(others_, const_cast<std::byte*>(memory_.data()), index);  // set() only reads it
  for (std::size_t i = 0; i < others_.fields.size(); ++i) row.set(i, from.bytes(i));
}

}  // namespace athanor::detail
