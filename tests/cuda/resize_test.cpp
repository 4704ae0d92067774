#include "data/image/resize.h"

#include <cstring>

#include "data/image/orientation.h"
#include "data/pixel_stage.h"
#include "kernels/resize_ops.h"
#include "tests/cuda/ops.h"
#include "tests/support/image_files.h"

// The kernel that scales images has the bits of the CPU. (resize_loader_test.cpp: a loader that uses it.)

namespace athanor::resize_test {

using kernels::StagedImage;
using ResizeOnDevice = test::DeviceTest;

Window whole(std::int64_t from, std::int64_t to) {
  return {static_cast<double>(from) / static_cast<double>(to), 0, 0, from};
}

/// Pixels [from, from + length) of a side, scaled to `to`, and shifted by part of a pixel.
Window part(std::int64_t from, std::int64_t length, std::int64_t to, double shift = 0) {
  return {static_cast<double>(length) / static_cast<double>(to), static_cast<double>(from) + shift, from,
          from + length};
}

/// Images of different sizes in one memory, as a PixelStage holds them.
struct Staged {
  std::vector<StagedImage> images;
  std::vector<std::uint8_t> pixels;

  void add(std::int64_t height, std::int64_t width, std::int64_t channels, const Window& rows,
           const Window& columns, const Orientation& turned = {}) {
    images.push_back({.at = std::ssize(pixels),
                      .height = static_cast<std::int32_t>(height),
                      .width = static_cast<std::int32_t>(width),
                      .channels = static_cast<std::int16_t>(channels),
                      .transposed = turned.transposed,
                      .rows_flipped = turned.rows_flipped,
                      .columns_flipped = turned.columns_flipped,
                      .rows = rows,
                      .columns = columns});
    for (std::int64_t i = 0; i < height * width * channels; ++i) {
      const std::uint32_t word = philox_word({images.size(), 3}, static_cast<std::uint64_t>(i));
      pixels.push_back(static_cast<std::uint8_t>(word % 4 == 0 ? 255 * (word >> 31) : word >> 8));
    }
  }
  Tensor described() const {
    std::vector<std::uint8_t> bytes(images.size() * sizeof(StagedImage));
    std::memcpy(bytes.data(), images.data(), bytes.size());
    return Tensor::from(bytes, {std::ssize(bytes)});
  }
  /// y [N, height, width, channels] of a device.
  Tensor scaled(Device device, std::int64_t height, std::int64_t width, std::int64_t channels) const {
    const Shape shape{std::ssize(images), height, width, channels};
    const std::vector<std::uint8_t> before(static_cast<std::size_t>(shape.numel()), 7);
    const Tensor y = Tensor::from(before, shape).to(device);
    const Tensor from = Tensor::from(pixels, {std::ssize(pixels)}).to(device), of = described().to(device);
    on_device(device, [&](auto& context) { kernels::resize_images(context, of, from, y); });
    return y.to(kCpu);
  }
  /// The same, by the loader threads' code.
  std::vector<std::uint8_t> by_resizer(std::size_t n, std::int64_t height, std::int64_t width,
                                       std::int64_t channels) const {
    const StagedImage& image = images[n];
    const Orientation turned{image.transposed != 0, image.rows_flipped != 0, image.columns_flipped != 0};
    const ImageSize stored = turned.turned({height, width});
    std::vector<std::uint8_t> narrow(static_cast<std::size_t>(height * width * image.channels)), upright, out;
    upright.resize(narrow.size());
    Resizer resize;
    resize({pixels.data() + image.at, image.height, image.width, image.channels,
            std::int64_t{image.width} * image.channels},
           image.rows, image.columns, stored.height, stored.width, narrow);
    turn({narrow.data(), stored.height, stored.width, image.channels, stored.width * image.channels}, turned,
         upright.data());
    if (image.channels == channels) return upright;
    for (const std::uint8_t byte : upright) out.insert(out.end(), static_cast<std::size_t>(channels), byte);
    return out;
  }
};

void expect_same_bits(const Staged& staged, std::int64_t height, std::int64_t width, std::int64_t channels) {
  SCOPED_TRACE(fmt::format("to {}x{}x{}", height, width, channels));
  const Tensor y = staged.scaled(kCpu, height, width, channels);
  EXPECT_TRUE(test::same_bits(staged.scaled(test::device(), height, width, channels), y));
  const auto each = static_cast<std::size_t>(height * width * channels);
  for (std::size_t n = 0; n < staged.images.size(); ++n) {
    const std::uint8_t* from = y.data<std::uint8_t>() + n * each;
    EXPECT_EQ(std::vector(from, from + each), staged.by_resizer(n, height, width, channels)) << n;
  }
}

TEST_F(ResizeOnDevice, HasTheBitsOfTheCpu) {
  const ImageSize results[] = {{1, 1}, {5, 3}, {16, 32}, {17, 33}, {40, 70}};
  const ImageSize sources[] = {{1, 1}, {1, 9}, {7, 1}, {2, 2}, {13, 17}, {64, 48}, {90, 31}};
  for (const std::int64_t channels : {1, 2, 3, 4}) {
    for (const ImageSize& to : results) {
      Staged staged;
      for (const ImageSize& from : sources) {
        staged.add(from.height, from.width, channels, whole(from.height, to.height),
                   whole(from.width, to.width));
        const std::int64_t top = from.height / 4, left = from.width / 3;
        staged.add(from.height, from.width, channels, part(top, from.height - top, to.height),
                   part(left, from.width - left, to.width));
        staged.add(from.height, from.width, channels, part(top, from.height - top, to.height, 0.3),
                   part(left, from.width - left, to.width, 0.1));
      }
      expect_same_bits(staged, to.height, to.width, channels);
    }
  }
}

// As many taps as there may be, and weights of a sample that lie beyond its window.
TEST_F(ResizeOnDevice, ShrinksSixtyFourTimes) {
  Staged staged;
  staged.add(64 * 3, 64 * 5, 3, whole(64 * 3, 3), whole(64 * 5, 5));
  staged.add(150, 300, 3, whole(150, 3), whole(300, 5));
  staged.add(150, 300, 1, whole(150, 3), whole(300, 5));
  for (const StagedImage& image : staged.images)
    EXPECT_LE(std::max(kernels::taps_of(image.rows), kernels::taps_of(image.columns)), kernels::kManyTaps);
  EXPECT_EQ(kernels::taps_of(staged.images[0].rows), kernels::kManyTaps);
  expect_same_bits(staged, 3, 5, 3);
}

// Letterboxed, turned, and by the nearest pixel.
TEST_F(ResizeOnDevice, PadsAndTakesTheNearest) {
  Staged staged;
  for (int turned = 0; turned < 8; ++turned) {
    const Orientation way{(turned & 1) != 0, (turned & 2) != 0, (turned & 4) != 0};
    const ImageSize to = way.turned({21, 45});
    Window rows = whole(30, to.height - 5), columns = whole(23 + turned, to.width - 8);
    rows.begin = 2, rows.end = to.height - 3;
    columns.begin = 8, columns.end = to.width;
    if (turned % 2 == 1) rows.interpolation = columns.interpolation = Resampling::nearest;
    for (const std::int64_t channels : {1, 3}) {
      staged.add(30, 23 + turned, channels, rows, columns, way);
      staged.images.back().padding = static_cast<std::int16_t>(100 + turned);
    }
  }
  const Tensor y = staged.scaled(kCpu, 21, 45, 3);
  EXPECT_TRUE(test::same_bits(staged.scaled(test::device(), 21, 45, 3), y));
  EXPECT_EQ(y.data<std::uint8_t>()[0], 100) << "the first image's corner";
}

// Grey images beside those in colour, and all eight orientations, of a result that is not square.
TEST_F(ResizeOnDevice, WidensGreyAndTurnsUpright) {
  Staged staged;
  for (int turned = 0; turned < 8; ++turned) {
    const Orientation way{(turned & 1) != 0, (turned & 2) != 0, (turned & 4) != 0};
    const ImageSize to = way.turned({21, 45});
    for (const std::int64_t channels : {1, 3})
      staged.add(30 + turned, 23, channels, whole(30 + turned, to.height), whole(23, to.width), way);
  }
  expect_same_bits(staged, 21, 45, 3);
}

TEST_F(ResizeOnDevice, LeavesCompleteRowsAlone) {
  Staged staged;
  staged.add(9, 8, 3, whole(9, 4), whole(8, 6));
  staged.images.insert(staged.images.begin(), StagedImage{});
  staged.images.push_back({});
  const Tensor y = staged.scaled(test::device(), 4, 6, 3);
  EXPECT_TRUE(test::same_bits(y, staged.scaled(kCpu, 4, 6, 3)));
  for (const std::int64_t row : {0, 2}) {
    for (std::int64_t i = 0; i < 4 * 6 * 3; ++i) ASSERT_EQ(y.data<std::uint8_t>()[row * 4 * 6 * 3 + i], 7);
  }
  EXPECT_EQ(Staged().scaled(test::device(), 4, 6, 3).numel(), 0);
}

}  // namespace athanor::resize_test
