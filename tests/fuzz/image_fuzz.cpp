#include <algorithm>
#include <array>
#include <vector>

#include <zlib.h>

#include "data/formats/detail/bytes.h"
#include "data/image/decoder.h"
#include "data/image/reader.h"
#include "fuzz.h"

using namespace athanor;

namespace {

/// Every pixel must be there.
unsigned sum_of(const ImageView& view) {
  unsigned sum = 0;
  for (std::int64_t row = 0; row < view.height; ++row) {
    const std::uint8_t* const from = view.pixels + row * view.stride;
    for (std::int64_t i = 0; i < view.width * view.channels; ++i) sum += from[i];
  }
  return sum;
}

/// Makes the CRC-32 of each chunk of a PNG fit: no fuzzer guesses those.
void fit_checksums(std::vector<std::byte>& file) {
  constexpr std::size_t kSignature = 8, kAround = 12;
  if (!PngDecoder::recognises(file)) return;
  for (std::size_t at = kSignature; at + kAround <= file.size();) {
    const std::size_t length = detail::load_be<std::uint32_t>(std::span(file).subspan(at));
    if (length > file.size() - at - kAround) return;
    const auto crc =
        crc32(0, reinterpret_cast<const Bytef*>(file.data() + at + 4), static_cast<uInt>(4 + length));
    std::ranges::copy(detail::stored_be(static_cast<std::uint32_t>(crc)),
                      file.begin() + static_cast<std::ptrdiff_t>(at + 8 + length));
    at += kAround + length;
  }
}

}  // namespace

/// The first byte says how much the image is reduced, which part of it is decoded, and whether the checksums
/// of a PNG are made to fit.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static ImageDecoder decoder;  // one for many images, as in a loader's thread
  try {
    static ImageReader reader;
    const auto given = std::as_bytes(std::span(data + 1, size - 1));
    std::vector<std::byte> file(given.begin(), given.end());
    if ((data[0] & 0x80) != 0) fit_checksums(file);
    const ImageSize whole = decoder.open(file);
    if (whole.height < 1 || whole.width < 1) std::abort();
    if (whole.height * whole.width > 1 << 20) return 0;  // allowed, but slow
    const int reduce = decoder.reduces() ? 1 << (data[0] & 3) : 1;
    const std::int64_t height = (whole.height + reduce - 1) / reduce,
                       width = (whole.width + reduce - 1) / reduce;
    const std::int64_t top = height * (data[0] >> 2 & 7) / 8, left = width * (data[0] >> 5 & 3) / 4;
    const Box box{top, left, std::max<std::int64_t>(1, (height - top) / 2), width - left};
    const ImageView view = decoder.decode(box, reduce);
    if (view.height != box.height || view.width != box.width || view.channels != 3) std::abort();
    if (sum_of(view) == 0xdeadbeef) std::abort();  // so that no pixel is left out
    // The same held upright, as EXIF data says, and cut at random.
    std::array<std::uint8_t, 9 * 7 * 3> out;
    const ImageTransform drawn{.height = 9, .width = 7, .random_crop = RandomResizedCrop{}};
    reader.read({file, Codec::jpeg}, drawn, {data[0], 0, 0}, 3, out);
  } catch (const IoError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
