#include "data/image/reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "tensor/base/error.h"

namespace athanor {
namespace {

/// The centre of a side of an image that is scaled to `scaled`.
Window middle(std::int64_t side, std::int64_t scaled, std::int64_t wanted) {
  const double scale = static_cast<double>(side) / static_cast<double>(scaled);
  // Half a pixel is rounded to even, as in Python.
  const double skipped = std::nearbyint(static_cast<double>(scaled - wanted) / 2);
  return {scale, skipped * scale, 0, side};
}

Window reduced(Window window, int by) {
  window.scale /= by;
  window.offset /= by;
  window.low /= by;
  window.high = (window.high + by - 1) / by;
  return window;
}

Window moved(Window window, std::int64_t by) {
  window.offset -= static_cast<double>(by);
  window.low -= by;
  window.high -= by;
  return window;
}

/// The same pixels counted from the other end of a side.
Window mirrored(const Window& window, std::int64_t side, std::int64_t count) {
  const std::int64_t end = std::min(window.end, count);
  const auto whole = static_cast<double>(side),
             covered = static_cast<double>(end - window.begin) * window.scale;
  Window other = window;
  other.offset = whole - covered - window.offset;
  other.low = side - window.high;
  other.high = side - window.low;
  other.begin = count - end;
  other.end = count - window.begin;
  return other;
}

/// Converts a placement in the upright image to the stored one of `size`; `result` is as stored, too.
Placement as_stored(Placement at, const ImageSize& result, const Orientation& turned, const ImageSize& size) {
  if (turned.transposed) std::swap(at.rows, at.columns);
  if (turned.rows_flipped) at.rows = mirrored(at.rows, size.height, result.height);
  if (turned.columns_flipped) at.columns = mirrored(at.columns, size.width, result.width);
  return at;
}

/// A whole side that is scaled to `scaled` pixels in the middle of `wanted`, at most which it has.
Window letterbox(std::int64_t side, std::int64_t scaled, std::int64_t wanted) {
  const double scale = static_cast<double>(side) / static_cast<double>(scaled);
  const std::int64_t begin = (wanted - scaled) / 2;
  return {scale, 0, 0, side, begin, begin + scaled};
}

/// Without a random crop.
Placement whole_or_centre(const ImageTransform& transform, const ImageSize& size) {
  const std::int64_t height = transform.height, width = transform.width;
  if (transform.mode == ResizeMode::squash)
    return {letterbox(size.height, height, height), letterbox(size.width, width, width)};
  const auto per = [](std::int64_t side, std::int64_t wanted) {
    return static_cast<double>(side) / static_cast<double>(wanted);
  };
  const double down = per(size.height, height), across = per(size.width, width);
  if (transform.mode == ResizeMode::pad) {
    const double scale = std::max(down, across);
    const auto scaled = [scale](std::int64_t side, std::int64_t most) {
      return std::clamp<std::int64_t>(std::llround(static_cast<double>(side) / scale), 1, most);
    };
    return {letterbox(size.height, scaled(size.height, height), height),
            letterbox(size.width, scaled(size.width, width), width),
            static_cast<std::uint8_t>(transform.padding)};
  }
  if (transform.shorter_side > 0) {
    const std::int64_t shorter = std::min(size.height, size.width);
    const auto scaled = [&](std::int64_t side) { return transform.shorter_side * side / shorter; };
    return {middle(size.height, scaled(size.height), height), middle(size.width, scaled(size.width), width)};
  }
  if (transform.crop_share < 1) {  // to whole pixels, as timm does
    const auto around = [&](std::int64_t wanted) {
      return static_cast<std::int64_t>(static_cast<double>(wanted) / transform.crop_share);
    };
    const double scale = std::min(per(size.height, around(height)), per(size.width, around(width)));
    const auto centre = [scale](std::int64_t side, std::int64_t wanted) {
      const double scaled = std::nearbyint(static_cast<double>(side) / scale);
      return middle(side, std::max(static_cast<std::int64_t>(scaled), wanted), wanted);
    };
    return {centre(size.height, height), centre(size.width, width)};
  }
  const double scale = std::min(down, across);
  const auto window = [&](std::int64_t side, std::int64_t wanted) {
    const double rest = static_cast<double>(side) - scale * static_cast<double>(wanted);
    return Window{scale, std::max(rest, 0.0) / 2, 0, side};
  };
  return {window(size.height, height), window(size.width, width)};
}

Placement of_part(const Box& box, const ImageTransform& transform) {
  const auto window = [](std::int64_t from, std::int64_t length, std::int64_t wanted) {
    return Window{static_cast<double>(length) / static_cast<double>(wanted), static_cast<double>(from), from,
                  from + length};
  };
  return {window(box.top, box.height, transform.height), window(box.left, box.width, transform.width)};
}

/// Writes the padding of a stored result.
void pad(const ImagePart& part, std::span<std::uint8_t> out) {
  const auto [rows, columns, padding] = part.at;
  const std::int64_t height = part.result.height, width = part.result.width;
  if (rows.begin == 0 && rows.end >= height && columns.begin == 0 && columns.end >= width) return;
  const std::int64_t channels = std::ssize(out) / (height * width);
  for (std::int64_t y = 0; y < height; ++y) {
    const auto fill = [&, y, byte = padding](std::int64_t from, std::int64_t to) {
      std::fill_n(out.data() + (y * width + from) * channels, (to - from) * channels, byte);
    };
    if (!rows.covers(y)) {
      fill(0, width);
    } else {
      fill(0, columns.begin);
      fill(std::min(columns.end, width), width);
    }
  }
}

}  // namespace

void must_have_size(const ImageSize& image, const ImageSize& field) {
  if (field == image) return;
  detail::fail<IoError>("must have the image's size, {}x{}, but is {}x{}", image.height, image.width,
                        field.height, field.width);
}

Placement place(const ImageTransform& transform, const ImageSize& size, const DrawKey& key) {
  Placement at = transform.random_crop ? of_part(draw(*transform.random_crop, size, key), transform)
                                       : whole_or_centre(transform, size);
  at.rows.interpolation = at.columns.interpolation = transform.interpolation;
  return at;
}

kernels::StagedImage ImagePart::staged() const {
  const auto narrow = [](std::int64_t side) { return static_cast<std::int32_t>(side); };
  return {.height = narrow(pixels.height),
          .width = narrow(pixels.width),
          .channels = static_cast<std::int16_t>(pixels.channels),
          .transposed = turned.transposed,
          .rows_flipped = turned.rows_flipped,
          .columns_flipped = turned.columns_flipped,
          .padding = at.padding,
          .rows = at.rows,
          .columns = at.columns};
}

bool ImageReader::copies(const StoredSample& sample, const ImageTransform& transform, std::int64_t channels) {
  const std::int64_t side = transform.shorter_side;
  const bool whole = transform.mode != ResizeMode::crop ||
                     (side == 0 ? transform.crop_share == 1 : side == std::min(sample.height, sample.width));
  return sample.codec == Codec::raw && !transform.random_crop && sample.height == transform.height &&
         sample.width == transform.width && sample.channels == channels && whole &&
         std::ssize(sample.bytes) == sample.height * sample.width * sample.channels;
}

void ImageReader::read(const StoredSample& sample, const ImageTransform& transform, const DrawKey& key,
                       std::int64_t channels, std::span<std::uint8_t> out) {
  if (copies(sample, transform, channels) && out.size() == sample.bytes.size()) {
    sample_ = sample;
    size_ = {sample.height, sample.width};
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
    std::int64_t stride = 0, bytes = 0;  // sizes from a file are untrusted
    const bool fits = sample.height >= 1 && sample.width >= 1 && sample.channels >= 1 &&
                      !__builtin_mul_overflow(sample.width, sample.channels, &stride) &&
                      !__builtin_mul_overflow(sample.height, stride, &bytes);
    if (!fits || std::ssize(sample.bytes) != bytes) {
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

ImagePart ImageReader::part(const Placement& upright, const ImageSize& wanted, bool reduces,
                            std::int64_t channels) {
  const ImageSize result = turned_.turned(wanted);
  Placement at = as_stored(upright, result, turned_, size_);
  int reduce = 1;
  const bool raw = sample_.codec == Codec::raw;
  if (reduces && !raw && decoder_.reduces() && at.rows.interpolation != Resampling::nearest) {
    const double scale = std::min(at.rows.scale, at.columns.scale);
    reduce = scale >= 8 ? 8 : scale >= 4 ? 4 : scale >= 2 ? 2 : 1;
    at = {reduced(at.rows, reduce), reduced(at.columns, reduce), at.padding};
  }
  const Reach rows = reach(at.rows, result.height), columns = reach(at.columns, result.width);
  const Box box{rows.first, columns.first, rows.last - rows.first, columns.last - columns.first};
  const auto clipped = [](Window window, const Reach& within) {
    window.low = std::max(window.low, within.first);
    window.high = std::min(window.high, within.last);
    return moved(window, within.first);
  };
  at = {clipped(at.rows, rows), clipped(at.columns, columns), at.padding};
  return {raw ? raw_part(box, channels) : decoder_.decode(box, reduce), at, result, turned_};
}

std::optional<ImagePart> ImageReader::undecoded(const Placement& upright, const ImageSize& wanted) const {
  if (sample_.codec == Codec::raw || !decoder_.is_plain_jpeg()) return std::nullopt;
  const ImageSize result = turned_.turned(wanted);
  return ImagePart{{nullptr, size_.height, size_.width, 3, size_.width * 3},
                   as_stored(upright, result, turned_, size_),
                   result,
                   turned_};
}

ImageView ImageReader::raw_part(const Box& box, std::int64_t channels) const {
  if (sample_.channels != channels && (sample_.channels != 1 || channels != 3)) {
    detail::fail<IoError>("raw: image must have {} channels, but has {}", channels, sample_.channels);
  }
  if (sample_.channels > kMaxResizedChannels) {
    detail::fail<IoError>("raw: image must have at most {} channels to be resized, but has {}",
                          kMaxResizedChannels, sample_.channels);
  }
  const std::int64_t stride = sample_.width * sample_.channels;
  const auto* pixels = reinterpret_cast<const std::uint8_t*>(sample_.bytes.data());
  return {pixels + box.top * stride + box.left * sample_.channels, box.height, box.width, sample_.channels,
          stride};
}

void ImageReader::scale(const ImagePart& part, std::int64_t channels, std::span<std::uint8_t> out) {
  const auto [pixels, at, result, turned] = part;
  if (!turned.upright()) {
    stored_.resize(out.size());
    resize_(pixels, at.rows, at.columns, result.height, result.width, stored_);
    pad(part, stored_);
    return turn(
        {stored_.data(), result.height, result.width, pixels.channels, result.width * pixels.channels},
        turned, out.data());
  }
  const bool widens = pixels.channels == 1 && channels == 3;
  const std::int64_t count = result.height * result.width;
  const auto scaled = widens ? out.first(static_cast<std::size_t>(count)) : out;
  resize_(pixels, at.rows, at.columns, result.height, result.width, scaled);
  pad(part, scaled);
  if (!widens) return;
  for (std::int64_t i = count - 1; i >= 0; --i) {  // backwards, because it is in place
    std::fill_n(out.data() + 3 * i, 3, out[static_cast<std::size_t>(i)]);
  }
}

/// A whole mask, upright.
ImageView ImageReader::classes() {
  ImageView view{reinterpret_cast<const std::uint8_t*>(sample_.bytes.data()), size_.height, size_.width,
                 sample_.channels, sample_.width * sample_.channels};
  if (sample_.codec != Codec::raw) view = decoder_.decode_classes({0, 0, size_.height, size_.width});
  if (view.channels != 1) detail::fail<IoError>("mask: must have one channel, but has {}", view.channels);
  if (turned_.upright()) return view;
  stored_.resize(static_cast<std::size_t>(view.height * view.width));
  turn(view, turned_, stored_.data());
  const ImageSize upright = turned_.turned(size_);
  return {stored_.data(), upright.height, upright.width, 1, upright.width};
}

void ImageReader::read_nearest(const Placement& at, const ImageSize& wanted, std::span<std::uint8_t> out) {
  const ImageView view = classes();
  const auto nearest = [](const Window& window, std::int64_t i) {
    return std::clamp(static_cast<std::int64_t>(std::floor(window.centre(i))), window.low, window.high - 1);
  };
  for (std::int64_t y = 0, i = 0; y < wanted.height; ++y) {
    const std::uint8_t* const row = view.pixels + nearest(at.rows, y) * view.stride;
    for (std::int64_t x = 0; x < wanted.width; ++x, ++i)
      out[static_cast<std::size_t>(i)] =
          at.rows.covers(y) && at.columns.covers(x) ? row[nearest(at.columns, x)] : kernels::kUnknownClass;
  }
}

/// Decodes only to find defects; returns the upright size.
ImageSize ImageReader::decode_all(const StoredSample& sample, bool mask) {
  const ImageSize upright = open(sample);
  if (mask) {
    classes();
  } else if (sample.codec != Codec::raw) {
    const int reduce = decoder_.reduces() ? 8 : 1;  // still reads every code
    const auto reduced = [reduce](std::int64_t side) { return (side + reduce - 1) / reduce; };
    decoder_.decode({0, 0, reduced(size_.height), reduced(size_.width)}, reduce);
  }
  return upright;
}

std::string ImageReader::check(const StoredSample& sample, std::span<const FieldSpec> fields) {
  const ImageSize size = decode_all(sample, false);
  std::string found(warning());
  std::size_t next = 0;
  for (const FieldSpec& field : fields) {
    if (field.name == "image" || field.name == "label" || next == sample.more.size()) continue;
    const StoredField& stored = sample.more[next++];
    const bool is_picture = field.kind == FieldKind::picture || field.kind == FieldKind::target;
    if (!is_picture && field.kind != FieldKind::mask) continue;
    try {
      must_have_size(size,
                     decode_all({stored.bytes, stored.codec, stored.height, stored.width, stored.channels},
                                !is_picture));
    } catch (const IoError& error) {
      detail::fail<IoError>("field '{}': {}", field.name, error.what());
    }
  }
  return found;
}

}  // namespace athanor
