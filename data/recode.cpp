#include "data/recode.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "data/image/jpeg.h"
#include "data/image/reader.h"
#include "data/image/resize.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

/// State that a thread reuses between samples.
class Recoder {
 public:
  explicit Recoder(const RecodeOptions& options) : options_(options) {}

  StoredSample recode(const StoredSample& sample, std::vector<std::byte>& bytes) {
    if (!sample.more.empty() && (options_.raw.height > 0 || options_.shorter_side > 0))
      detail::fail<IoError>(
          "images must not change if samples have more fields, because their sizes must match");
    if (options_.raw.height > 0) return to_raw(sample, bytes);
    return options_.shorter_side > 0 ? shrink(sample, bytes) : checked(sample);
  }

 private:
  StoredSample to_raw(const StoredSample& sample, std::vector<std::byte>& bytes) {
    const ImageTransform transform{.height = options_.raw.height, .width = options_.raw.width};
    const std::int64_t channels = sample.codec == Codec::raw ? sample.channels : 3;
    if (channels > kMaxResizedChannels &&
        (sample.height != transform.height || sample.width != transform.width))
      detail::fail<IoError>("a raw image must have at most {} channels to be resized, but has {}",
                            kMaxResizedChannels, channels);
    bytes.resize(static_cast<std::size_t>(transform.height * transform.width * channels));
    reader_.read(sample, transform, {}, channels,
                 {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()});
    return {bytes, Codec::raw, transform.height, transform.width, channels, sample.label};
  }

  StoredSample checked(const StoredSample& sample) {
    if (options_.check) reader_.check(sample, options_.fields);
    return sample;
  }

  StoredSample shrink(const StoredSample& sample, std::vector<std::byte>& bytes) {
    const bool raw = sample.codec == Codec::raw;
    const ImageSize size = reader_.open(sample);
    if (std::min(size.height, size.width) <= options_.shorter_side) return checked(sample);
    if (raw && sample.channels != 1 && sample.channels != 3) {
      detail::fail<IoError>("a raw image must have 1 or 3 channels to become a JPEG, but has {}",
                            sample.channels);
    }
    const double scale =
        static_cast<double>(std::min(size.height, size.width)) / static_cast<double>(options_.shorter_side);
    const auto scaled = [&](std::int64_t side) {
      return std::max<std::int64_t>(1, std::llround(static_cast<double>(side) / scale));
    };
    const std::int64_t height = scaled(size.height), width = scaled(size.width);
    if (std::max(height, width) > kMaxJpegSide) {
      detail::fail<IoError>("a JPEG's sides must be at most {}, but would be {}x{}", kMaxJpegSide, height,
                            width);
    }
    // Sides are rounded, so each axis has its own scale and the window ends at the image's edge.
    const auto window = [](std::int64_t from, std::int64_t to) {
      return Window{static_cast<double>(from) / static_cast<double>(to), 0, 0, from};
    };
    const std::int64_t channels = raw ? sample.channels : 3;
    pixels_.resize(static_cast<std::size_t>(height * width * channels));
    reader_.read({window(size.height, height), window(size.width, width)}, {height, width}, false, channels,
                 pixels_);
    encode_jpeg({pixels_.data(), height, width, channels, width * channels}, options_.quality, bytes);
    return {bytes, Codec::jpeg, 0, 0, 0, sample.label};
  }

  RecodeOptions options_;
  ImageReader reader_;
  std::vector<std::uint8_t> pixels_;
};

}  // namespace

SampleChange make_recoder(const RecodeOptions& options) {
  const bool raw = options.raw != ImageSize{};
  ATH_CHECK(options.shorter_side >= 0 && options.shorter_side <= kMaxImageSide && options.quality >= 1 &&
                options.quality <= 100,
            "recode: the shorter side must be in [0, {}] and the quality in [1, 100], but got {} and {}",
            kMaxImageSide, options.shorter_side, options.quality);
  ATH_CHECK(
      !raw || (options.raw.height > 0 && options.raw.width > 0 && options.raw.height <= kMaxImageSide &&
               options.raw.width <= kMaxImageSide && options.shorter_side == 0),
      "recode: raw images must have sides in [1, {}], and no shorter side of JPEGs, but got {}x{} and {}",
      kMaxImageSide, options.raw.height, options.raw.width, options.shorter_side);
  return [recoder = std::make_shared<Recoder>(options)](const StoredSample& sample,
                                                        std::vector<std::byte>& bytes) {
    return recoder->recode(sample, bytes);
  };
}

}  // namespace athanor
