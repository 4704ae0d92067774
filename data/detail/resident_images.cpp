#include "data/detail/resident_images.h"

#include <algorithm>

#include "tensor/allocator.h"

namespace athanor::detail {

ResidentImages::ResidentImages(const Dataset& source, Device device)
    : spec_{0, 0, source.spec().channels, source.spec().classes} {
  constexpr std::int64_t kPieceBytes = 4 << 20;
  const AllocTag named("data");
  const ImageSpec& whole = source.spec();
  const std::int64_t n = source.size(), bytes = whole.bytes();
  images_ = Tensor::empty({n, whole.height, whole.width, whole.channels}, {DType::u8, device});
  labels_.resize(static_cast<std::size_t>(n));
  const std::int64_t most = std::clamp<std::int64_t>(kPieceBytes / bytes, 1, n);
  const Tensor piece = Tensor::empty({most * bytes}, {DType::u8, kCpu});
  for (std::int64_t first = 0; first < n; first += most) {
    const std::int64_t count = std::min(most, n - first);
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint8_t* pixels = piece.data<std::uint8_t>() + i * bytes;
      labels_[static_cast<std::size_t>(first + i)] =
          source.read(first + i, {pixels, static_cast<std::size_t>(bytes)});
    }
    images_.view_as_strided({count * bytes}, {1}, first * bytes)
        .copy_bytes_from(piece.view_as_strided({count * bytes}, {1}, 0));
  }
}

}  // namespace athanor::detail
