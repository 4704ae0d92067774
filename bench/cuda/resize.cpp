#include "kernels/resize.h"

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"

namespace athanor::bench {
namespace {

using kernels::StagedImage;

/// A photo of which a rectangle is scaled to a square of `size` pixels.
struct Photo {
  const char* op;
  Shape pixels;
  std::int64_t top, left, height, width, size;
};
// A photo as ImageNet has them: all of it, and a crop of a quarter.
const Photo kPhotos[] = {
    {"resize_whole", {1, 375, 500, 3}, 0, 0, 375, 500, 224},
    {"resize_crop", {1, 375, 500, 3}, 90, 120, 188, 250, 224},
};

Window window_of(std::int64_t first, std::int64_t count, std::int64_t size) {
  return {.scale = static_cast<double>(count) / static_cast<double>(size),
          .offset = static_cast<double>(first),
          .low = first,
          .high = first + count};
}

/// The kernel's arguments for `copies` photos, one after the other.
Tensor descriptions(const Photo& photo, std::int64_t copies) {
  const Tensor all =
      Tensor::empty({copies * static_cast<std::int64_t>(sizeof(StagedImage))}, {DType::u8, kCpu});
  auto* const images = reinterpret_cast<StagedImage*>(all.data<std::uint8_t>());
  for (std::int64_t i = 0; i < copies; ++i)
    images[i] = {.at = i * photo.pixels.numel(),
                 .height = static_cast<std::int32_t>(photo.pixels[1]),
                 .width = static_cast<std::int32_t>(photo.pixels[2]),
                 .channels = static_cast<std::int16_t>(photo.pixels[3]),
                 .rows = window_of(photo.top, photo.height, photo.size),
                 .columns = window_of(photo.left, photo.width, photo.size)};
  return all;
}

void add_photo(const Photo& photo) {
  const Shape y = {1, photo.size, photo.size, photo.pixels[3]};
  const Shape read = {photo.height, photo.width, photo.pixels[3]};
  add({.op = photo.op,
       .dir = "fwd",
       .dtype = DType::u8,
       .shape = photo.pixels,
       .work = {.bytes = bytes_of(read, DType::u8) + bytes_of(y, DType::u8)},
       .prepare =
           [=] {
             return call({{.value = descriptions(photo, 1),
                           .role = Role::whole,
                           .grow = [=](std::int64_t tiles) { return descriptions(photo, tiles); }},
                          {pattern(photo.pixels, DType::u8, 0, 256)},
                          result(Role::row_result, y, DType::u8)},
                         0, [](auto& context, std::span<const Tensor> t) {
                           const Tensor pixels = t[1].view_as_strided({t[1].numel()}, {1}, 0);
                           kernels::resize_images(context, t[0], pixels, t[2]);
                         });
           },
       .tiles = tiles_for(photo.pixels, DType::u8)});
}

}  // namespace

void add_resize() {
  for (const Photo& photo : kPhotos) add_photo(photo);
}

}  // namespace athanor::bench
