#include "data/image/jpeg.h"

#include <fstream>
#include <memory>
#include <span>

#include <turbojpeg.h>

#include "tensor/error.h"

namespace athanor {
namespace {

constexpr std::int64_t kMaxPixels = 100'000'000, kMaxFileBytes = std::int64_t{1} << 30;

template <class... Args>
[[noreturn]] void fail(const std::filesystem::path& path, fmt::format_string<Args...> format,
                       Args&&... args) {
  detail::fail<IoError>("jpeg: {}: {}; replace or delete the file", path.string(),
                        fmt::format(format, std::forward<Args>(args)...));
}

std::vector<unsigned char> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::int64_t bytes = in ? static_cast<std::int64_t>(in.tellg()) : -1;
  if (bytes < 0 || bytes > kMaxFileBytes) fail(path, "must be a readable file of at most 1 GiB");
  std::vector<unsigned char> content(static_cast<std::size_t>(bytes));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(content.data()), bytes);
  if (in.gcount() != bytes) fail(path, "offset {}: must have {} bytes", in.gcount(), bytes);
  return content;
}

/// The smallest of the decoder's scales (eighths) that still covers the wanted size.
tjscalingfactor choose_scale(int width, int height, std::int64_t min_width, std::int64_t min_height) {
  tjscalingfactor best{1, 1};
  int count = 0;
  const tjscalingfactor* factors = tjGetScalingFactors(&count);
  for (const tjscalingfactor& factor : std::span(factors, static_cast<std::size_t>(count))) {
    const bool smaller = factor.num * best.denom < best.num * factor.denom;
    if (smaller && TJSCALED(width, factor) >= min_width && TJSCALED(height, factor) >= min_height)
      best = factor;
  }
  return best;
}

}  // namespace

Rgb decode_jpeg(const std::filesystem::path& path, std::int64_t min_height, std::int64_t min_width) {
  const std::vector<unsigned char> content = read_file(path);
  const std::unique_ptr<void, int (*)(void*)> decoder(tjInitDecompress(), tjDestroy);
  if (!decoder) detail::fail<BackendError>("jpeg: the decoder cannot start");
  int width = 0, height = 0, subsampling = 0, colours = 0;
  if (tjDecompressHeader3(decoder.get(), content.data(), content.size(), &width, &height, &subsampling,
                          &colours) != 0) {
    fail(path, "must be a JPEG image, but got: {}", tjGetErrorStr2(decoder.get()));
  }
  if (std::int64_t{width} * height > kMaxPixels) {
    fail(path, "must have at most {} pixels, but is {}x{}", kMaxPixels, width, height);
  }
  if (colours == TJCS_CMYK || colours == TJCS_YCCK) fail(path, "must be grey or RGB, but is CMYK");
  const tjscalingfactor scale = choose_scale(width, height, min_width, min_height);
  Rgb image{TJSCALED(height, scale), TJSCALED(width, scale), {}};
  image.pixels.resize(static_cast<std::size_t>(image.height * image.width * 3));
  if (tjDecompress2(decoder.get(), content.data(), content.size(), image.pixels.data(),
                    static_cast<int>(image.width), 0, static_cast<int>(image.height), TJPF_RGB,
                    TJFLAG_ACCURATEDCT) != 0) {
    fail(path, "must be a whole JPEG image, but got: {}", tjGetErrorStr2(decoder.get()));
  }
  return image;
}

}  // namespace athanor
