#include "data/image/transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/augment.h"
#include "kernels/math.h"
#include "tensor/error.h"

namespace athanor {
namespace {

constexpr int kAttempts = 10;

std::int64_t below(std::uint32_t word, std::int64_t range) {
  return static_cast<std::int64_t>((std::uint64_t{word} * static_cast<std::uint64_t>(range)) >> 32);
}

/// The middle of an image, scaled so that its sides become `scaled`.
Window middle(std::int64_t side, std::int64_t scaled, std::int64_t wanted) {
  const double scale = static_cast<double>(side) / static_cast<double>(scaled);
  // Half a pixel is rounded to even, as in Python.
  const double skipped = std::nearbyint(static_cast<double>(scaled - wanted) / 2);
  return {scale, skipped * scale, 0, side};
}

Window reduced(const Window& window, int by) {
  return {window.scale / by, window.offset / by, window.low / by, (window.high + by - 1) / by};
}

Window moved(Window window, std::int64_t by) {
  window.offset -= static_cast<double>(by);
  window.low -= by;
  window.high -= by;
  return window;
}

/// The same pixels counted from the other end of a side.
Window mirrored(const Window& window, std::int64_t side, std::int64_t count) {
  const auto whole = static_cast<double>(side), covered = static_cast<double>(count) * window.scale;
  return {window.scale, whole - covered - window.offset, side - window.high, side - window.low};
}

/// Where a placement in the upright image lies in the stored one of `size`; `result` is as stored, too.
Placement as_stored(Placement at, const ImageSize& result, const Orientation& turned, const ImageSize& size) {
  if (turned.transposed) std::swap(at.rows, at.columns);
  if (turned.rows_flipped) at.rows = mirrored(at.rows, size.height, result.height);
  if (turned.columns_flipped) at.columns = mirrored(at.columns, size.width, result.width);
  return at;
}

/// A raw sample that is what is wanted, neither cut nor scaled.
bool is_as_wanted(const StoredSample& sample, const ImageTransform& transform, std::int64_t channels) {
  const std::int64_t side = transform.shorter_side;
  return sample.codec == Codec::raw && !transform.random_crop && sample.height == transform.height &&
         sample.width == transform.width && sample.channels == channels &&
         (side == 0 || side == std::min(sample.height, sample.width)) &&
         std::ssize(sample.bytes) == sample.height * sample.width * sample.channels;
}

}  // namespace

Box draw(const RandomResizedCrop& crop, const ImageSize& size, const DrawKey& key) {
  const auto height = static_cast<double>(size.height), width = static_cast<double>(size.width);
  const double low = math::log(crop.min_ratio), high = math::log(crop.max_ratio);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto op =
        static_cast<std::uint64_t>(kernels::AugmentOp::resized_crop) + static_cast<std::uint64_t>(attempt);
    const std::uint64_t stream =
        random_stream(RandomPurpose::augment, static_cast<std::uint64_t>(key.epoch), op);
    const PhiloxBlock random = philox({key.seed, stream}, static_cast<std::uint64_t>(key.sample));
    const double share = random.word[0] * 0x1p-32, at = random.word[1] * 0x1p-32;
    const double area = height * width * (crop.min_area + (crop.max_area - crop.min_area) * share);
    const double ratio = math::exp(low + (high - low) * at);
    const auto w = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * ratio)));
    const auto h = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / ratio)));
    if (w < 1 || h < 1 || w > size.width || h > size.height) continue;
    return {below(random.word[2], size.height - h + 1), below(random.word[3], size.width - w + 1), h, w};
  }
  Box box{0, 0, size.height, size.width};
  if (width / height < crop.min_ratio) {
    box.height = static_cast<std::int64_t>(std::nearbyint(width / crop.min_ratio));
  } else if (width / height > crop.max_ratio) {
    box.width = static_cast<std::int64_t>(std::nearbyint(height * crop.max_ratio));
  }
  box.height = std::clamp<std::int64_t>(box.height, 1, size.height);
  box.width = std::clamp<std::int64_t>(box.width, 1, size.width);
  box.top = (size.height - box.height) / 2;
  box.left = (size.width - box.width) / 2;
  return box;
}

std::string describe(const ImageTransform& transform) {
  const std::string size = fmt::format("{}x{}", transform.height, transform.width);
  if (const auto& crop = transform.random_crop) {
    return fmt::format("random part of {} to {} of the area, {} to {} as wide as high, to {}", crop->min_area,
                       crop->max_area, crop->min_ratio, crop->max_ratio, size);
  }
  if (transform.shorter_side == 0) return fmt::format("middle that covers {}", size);
  return fmt::format("shorter side to {}, middle of {}", transform.shorter_side, size);
}

void check(const ImageTransform& transform) {
  const auto is_side = [](std::int64_t side) { return side >= 1 && side <= kMaxImageSide; };
  ATH_CHECK(is_side(transform.height) && is_side(transform.width),
            "image transform: height and width must be in [1, {}], but got {}x{}", kMaxImageSide,
            transform.height, transform.width);
  if (const auto& crop = transform.random_crop) {
    ATH_CHECK(crop->min_area > 0 && crop->min_area <= crop->max_area && crop->max_area <= 1 &&
                  crop->min_ratio >= 1e-3 && crop->min_ratio <= crop->max_ratio && crop->max_ratio <= 1e3,
              "image transform: a random part must have an area in (0, 1] and a ratio in [0.001, 1000], but "
              "got [{}, {}] and [{}, {}]",
              crop->min_area, crop->max_area, crop->min_ratio, crop->max_ratio);
  }
  ATH_CHECK(
      transform.shorter_side == 0 || (transform.shorter_side >= std::max(transform.height, transform.width) &&
                                      transform.shorter_side <= kMaxImageSide),
      "image transform: the shorter side must be 0 or in [{}, {}], but got {}",
      std::max(transform.height, transform.width), kMaxImageSide, transform.shorter_side);
}

Placement place(const ImageTransform& transform, const ImageSize& size, const DrawKey& key) {
  if (transform.random_crop) {
    const Box box = draw(*transform.random_crop, size, key);
    const auto window = [](std::int64_t from, std::int64_t length, std::int64_t wanted) {
      return Window{static_cast<double>(length) / static_cast<double>(wanted), static_cast<double>(from),
                    from, from + length};
    };
    return {window(box.top, box.height, transform.height), window(box.left, box.width, transform.width)};
  }
  if (transform.shorter_side > 0) {
    const std::int64_t shorter = std::min(size.height, size.width);
    const auto scaled = [&](std::int64_t side) { return transform.shorter_side * side / shorter; };
    return {middle(size.height, scaled(size.height), transform.height),
            middle(size.width, scaled(size.width), transform.width)};
  }
  const auto per = [](std::int64_t side, std::int64_t wanted) {
    return static_cast<double>(side) / static_cast<double>(wanted);
  };
  const double scale = std::min(per(size.height, transform.height), per(size.width, transform.width));
  const auto window = [&](std::int64_t side, std::int64_t wanted) {
    const double rest = static_cast<double>(side) - scale * static_cast<double>(wanted);
    return Window{scale, std::max(rest, 0.0) / 2, 0, side};
  };
  return {window(size.height, transform.height), window(size.width, transform.width)};
}

void ImageReader::read(const StoredSample& sample, const ImageTransform& transform, const DrawKey& key,
                       std::int64_t channels, std::span<std::uint8_t> out) {
  if (is_as_wanted(sample, transform, channels) && out.size() == sample.bytes.size()) {
    std::memcpy(out.data(), sample.bytes.data(), out.size());
    return;
  }
  const ImageSize size = open(sample);
  const ImageSize wanted{transform.height, transform.width};
  read(place(transform, size, key), wanted, transform.random_crop.has_value(), channels, out);
}

ImageSize ImageReader::open(const StoredSample& sample) {
  sample_ = sample;
  turned_ = {};
  if (sample.codec == Codec::raw) {
    size_ = {sample.height, sample.width};
    const std::int64_t stride = sample.width * sample.channels;
    if (sample.height < 1 || stride < 1 || std::ssize(sample.bytes) != sample.height * stride) {
      detail::fail<IoError>(
          "raw: image must have height x width x channels bytes, but is {}x{}x{} in {} bytes", sample.height,
          sample.width, sample.channels, sample.bytes.size());
    }
  } else {
    size_ = decoder_.open(sample.bytes);
    turned_ = decoder_.orientation();
  }
  return turned_.turned(size_);
}

void ImageReader::read(const Placement& upright, const ImageSize& wanted, bool reduces, std::int64_t channels,
                       std::span<std::uint8_t> out) {
  const ImageSize result = turned_.turned(wanted);
  Placement at = as_stored(upright, result, turned_, size_);
  int reduce = 1;
  const bool raw = sample_.codec == Codec::raw;
  if (reduces && !raw && decoder_.reduces()) {
    const double scale = std::min(at.rows.scale, at.columns.scale);
    reduce = scale >= 8 ? 8 : scale >= 4 ? 4 : scale >= 2 ? 2 : 1;
    at = {reduced(at.rows, reduce), reduced(at.columns, reduce)};
  }
  const Reach rows = reach(at.rows, result.height), columns = reach(at.columns, result.width);
  const Box box{rows.first, columns.first, rows.last - rows.first, columns.last - columns.first};
  const auto clipped = [](Window window, const Reach& within) {
    window.low = std::max(window.low, within.first);
    window.high = std::min(window.high, within.last);
    return moved(window, within.first);
  };
  at = {clipped(at.rows, rows), clipped(at.columns, columns)};
  if (raw) {
    read_raw(at, box, result, channels, out);
  } else if (turned_.upright()) {
    resize_(decoder_.decode(box, reduce), at.rows, at.columns, result.height, result.width, out);
  } else {
    const ImageView view = decoder_.decode(box, reduce);
    stored_.resize(out.size());
    resize_(view, at.rows, at.columns, result.height, result.width, stored_);
    turn({stored_.data(), result.height, result.width, view.channels, result.width * view.channels}, turned_,
         out.data());
  }
}

void ImageReader::read_raw(const Placement& at, const Box& box, const ImageSize& result,
                           std::int64_t channels, std::span<std::uint8_t> out) {
  if (sample_.channels != channels && (sample_.channels != 1 || channels != 3)) {
    detail::fail<IoError>("raw: image must have {} channels, but has {}", channels, sample_.channels);
  }
  if (sample_.channels > 4) {
    detail::fail<IoError>("raw: image must have at most 4 channels to be resized, but has {}",
                          sample_.channels);
  }
  const std::int64_t stride = sample_.width * sample_.channels;
  const auto* pixels = reinterpret_cast<const std::uint8_t*>(sample_.bytes.data());
  const ImageView view{pixels + box.top * stride + box.left * sample_.channels, box.height, box.width,
                       sample_.channels, stride};
  const std::int64_t count = result.height * result.width;
  const auto narrow = static_cast<std::size_t>(count * sample_.channels);
  resize_(view, at.rows, at.columns, result.height, result.width, out.first(narrow));
  if (sample_.channels == channels) return;
  for (std::int64_t i = count - 1; i >= 0; --i) {  // from the back: in place
    std::fill_n(out.data() + 3 * i, 3, out[static_cast<std::size_t>(i)]);
  }
}

void ImageReader::check(const StoredSample& sample) {
  open(sample);
  if (sample.codec == Codec::raw) return;
  const int reduce = decoder_.reduces() ? 8 : 1;  // every code is read all the same
  decoder_.decode({0, 0, (size_.height + reduce - 1) / reduce, (size_.width + reduce - 1) / reduce}, reduce);
}

}  // namespace athanor
