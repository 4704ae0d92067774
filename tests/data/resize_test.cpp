#include "data/image/resize.h"

#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "data/image/detail/resize_rows.h"
#include "tensor/base/error.h"
#include "tensor/philox.h"

namespace athanor::resize_test {

/// One pixel's value, straight from the definition, in double.
double exact(const ImageView& image, const Window& rows, const Window& columns, std::int64_t y,
             std::int64_t x, std::int64_t c) {
  const auto weight = [](const Window& window, std::int64_t i, std::int64_t at) {
    const double centre = (static_cast<double>(i) + 0.5) * window.scale + window.offset;
    return std::max(0.0, 1 - std::abs(static_cast<double>(at) + 0.5 - centre) / std::max(window.scale, 1.0));
  };
  double sum = 0, total = 0;
  for (std::int64_t v = rows.low; v < rows.high; ++v) {
    const double wy = weight(rows, y, v);
    if (wy == 0) continue;
    for (std::int64_t u = columns.low; u < columns.high; ++u) {
      const double w = wy * weight(columns, x, u);
      total += w;
      sum += w * image.row(v)[u * image.channels + c];
    }
  }
  return sum / total;
}

std::vector<std::uint8_t> noise(std::int64_t bytes, std::uint64_t seed) {
  std::vector<std::uint8_t> values;
  for (std::int64_t i = 0; i < bytes; ++i) {
    const std::uint32_t word = philox_word({seed, 3}, static_cast<std::uint64_t>(i));
    values.push_back(
        static_cast<std::uint8_t>(word % 4 == 0 ? 255 * (word >> 31) : word >> 8));  // extremes, too
  }
  return values;
}

Window whole(std::int64_t from, std::int64_t to) {
  return {static_cast<double>(from) / static_cast<double>(to), 0, 0, from};
}

struct Case {
  std::int64_t height, width, channels, to_height, to_width;
};

class ResizeMatchesDouble : public testing::TestWithParam<Case> {};

TEST_P(ResizeMatchesDouble, WithinHalfALevelOrSo) {
  const Case c = GetParam();
  const auto pixels = noise(c.height * c.width * c.channels, 4);
  const ImageView image{pixels.data(), c.height, c.width, c.channels, c.width * c.channels};
  // All of it, and a part that begins between pixels and may not reach out of its edges.
  const std::int64_t top = c.height / 4, left = c.width / 3;
  const double up = static_cast<double>(c.height - top) / static_cast<double>(c.to_height);
  const double across = static_cast<double>(c.width - left) / static_cast<double>(c.to_width);
  const std::pair<Window, Window> windows[] = {
      {whole(c.height, c.to_height), whole(c.width, c.to_width)},
      {{up, static_cast<double>(top), top, c.height}, {across, static_cast<double>(left), left, c.width}},
      {{up * 0.6, static_cast<double>(top) + 0.3, top, c.height},
       {across * 0.7, static_cast<double>(left) + 0.1, left, c.width}},
  };
  Resizer resize;
  for (const auto& [rows, columns] : windows) {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(c.to_height * c.to_width * c.channels));
    resize(image, rows, columns, c.to_height, c.to_width, out);
    double worst = 0;
    std::size_t i = 0;
    for (std::int64_t y = 0; y < c.to_height; ++y) {
      for (std::int64_t x = 0; x < c.to_width; ++x) {
        for (std::int64_t k = 0; k < c.channels; ++k, ++i) {
          worst = std::max(worst, std::abs(out[i] - exact(image, rows, columns, y, x, k)));
        }
      }
    }
    EXPECT_LT(worst, 0.6);  // 0.5 is what rounding costs
  }
}

INSTANTIATE_TEST_SUITE_P(All, ResizeMatchesDouble,
                         testing::Values(Case{1, 1, 3, 1, 1}, Case{1, 1, 3, 5, 7}, Case{2, 3, 3, 9, 8},
                                         Case{40, 50, 3, 32, 32}, Case{37, 29, 3, 31, 28},
                                         Case{64, 64, 1, 40, 33}, Case{30, 44, 4, 23, 17},
                                         Case{30, 44, 2, 61, 70}, Case{100, 120, 3, 40, 50},
                                         Case{150, 160, 3, 17, 13}, Case{320, 400, 3, 10, 9},
                                         Case{20, 600, 3, 20, 16}, Case{3, 5, 3, 2, 2}, Case{9, 4, 1, 4, 3},
                                         Case{128, 150, 3, 64, 112}, Case{520, 500, 3, 8, 9},
                                         Case{700, 650, 3, 4, 5}, Case{6000, 4, 1, 3, 2},
                                         Case{3, 9000, 2, 2, 7}, Case{60, 56, 3, 64, 56}));

#if defined(__AVX2__)
TEST(Resize, EveryCpuGetsTheSameBits) {
  using namespace resize_rows;
  constexpr std::int64_t kTaps = 3, kChannels = 3;
  const auto row = noise(600, 8), weights = noise(8000, 9), picks = noise(256, 10);
  std::vector<std::uint16_t> weight;
  for (std::size_t i = 0; i + 1 < weights.size(); i += 2) {
    weight.push_back(static_cast<std::uint16_t>((weights[i] << 8 | weights[i + 1]) / kTaps));
  }
  std::vector<std::int32_t> from, to;
  std::vector<std::uint8_t> pick;
  for (std::int32_t g = 0; g < 16; ++g) {
    from.push_back(g * 31);
    to.push_back(g * 7);  // the last value of each is the next one's
    for (std::size_t lane = 0; lane < 8; ++lane) {
      const std::uint8_t at = picks[static_cast<std::size_t>(g) * 8 + lane];
      pick.push_back(0x80);
      pick.push_back(at < 40 ? 0x80 : at % 16);
    }
  }
  const Groups groups{from.data(), to.data(), pick.data(), weight.data(), from.size(), kTaps, kChannels};
  std::vector<std::uint16_t> a(200), b(200);
  plain::narrow_row<0>(row.data(), groups, a.data());
  avx2::narrow_row<0>(row.data(), groups, b.data());
  EXPECT_EQ(a, b);
  avx2::narrow_row<3>(row.data(), groups, b.data());
  EXPECT_EQ(a, b);
  const std::uint16_t* rows[] = {weight.data(), weight.data() + 777, weight.data() + 1500};
  for (const std::int64_t values : {1, 31, 32, 33, 150}) {
    std::vector<std::uint8_t> c(static_cast<std::size_t>(values)), d(c.size());
    plain::blend_rows<0>(values, kTaps, weight.data() + 40, rows, c.data());
    avx2::blend_rows<3>(values, kTaps, weight.data() + 40, rows, d.data());
    EXPECT_EQ(c, d);
  }
}
#endif

TEST(Resize, KnownValues) {
  Resizer resize;
  // Halved: weights 3 3 1 of 7, cut off by the edge.
  const std::uint8_t row[] = {10, 20, 30, 40};
  std::uint8_t out[2];
  resize({row, 1, 4, 1, 4}, whole(1, 1), whole(4, 2), 1, 2, out);
  EXPECT_EQ(out[0], 17);  // (30 + 60 + 30) / 7 = 17.14
  EXPECT_EQ(out[1], 33);  // (20 + 90 + 120) / 7 = 32.86
  // Doubled: a quarter of the neighbour.
  std::uint8_t wide[8];
  resize({row, 1, 4, 1, 4}, whole(1, 1), whole(4, 8), 1, 8, wide);
  EXPECT_EQ(std::vector<int>(wide, wide + 8), (std::vector<int>{10, 13, 18, 23, 28, 33, 38, 40}));
}

TEST(Resize, SameSizeChangesNothingAndOneColourStays) {
  const auto pixels = noise(4653, 5);
  Resizer resize;
  std::vector<std::uint8_t> out(pixels.size());
  resize({pixels.data(), 33, 47, 3, 141}, whole(33, 33), whole(47, 47), 33, 47, out);
  EXPECT_EQ(out, pixels);
  for (int colour = 0; colour < 256; ++colour) {
    const std::vector<std::uint8_t> flat(12600, static_cast<std::uint8_t>(colour));
    std::vector<std::uint8_t> small(1107);
    resize({flat.data(), 60, 70, 3, 210}, whole(60, 9), whole(70, 41), 9, 41, small);
    ASSERT_EQ(small, std::vector<std::uint8_t>(small.size(), static_cast<std::uint8_t>(colour)));
    for (const std::int64_t to : {18, 30, 33, 100}) {  // 233, 140, 127 and 42 times
      std::vector<std::uint8_t> line(static_cast<std::size_t>(to));
      resize({flat.data(), 3, 4200, 1, 4200}, whole(3, 1), whole(4200, to), 1, to, line);
      ASSERT_EQ(line, std::vector<std::uint8_t>(line.size(), static_cast<std::uint8_t>(colour)));
      resize({flat.data(), 4200, 3, 1, 3}, whole(4200, to), whole(3, 1), to, 1, line);
      ASSERT_EQ(line, std::vector<std::uint8_t>(line.size(), static_cast<std::uint8_t>(colour)));
    }
  }
}

TEST(Resize, APartOfALargerImageIsThatImage) {
  // 41x44 at (9, 20) of 50x64: rows that lie far apart, and the last one at the very end of the memory (which
  // a sanitizer watches).
  const auto pixels = noise(9600, 6);
  const ImageView part{pixels.data() + 1788, 41, 44, 3, 192};
  std::vector<std::uint8_t> dense, a(2790), b(a.size()), c(a.size());
  for (std::int64_t y = 0; y < 41; ++y) dense.insert(dense.end(), part.row(y), part.row(y) + 132);
  Resizer resize, other;
  resize(part, whole(41, 30), whole(44, 31), 30, 31, a);
  resize({dense.data(), 41, 44, 3, 132}, whole(41, 30), whole(44, 31), 30, 31, b);
  EXPECT_EQ(a, b);
  std::thread thread([&] { other(part, whole(41, 30), whole(44, 31), 30, 31, c); });
  thread.join();
  EXPECT_EQ(a, c);
  // One object, windows that come and go.
  resize(part, whole(41, 31), whole(44, 30), 31, 30, b);
  resize(part, whole(41, 30), whole(44, 31), 30, 31, c);
  EXPECT_EQ(a, c);
}

TEST(Resize, ReachCoversThePixelsThatAreRead) {
  for (const double scale : {0.3, 1.0, 1.25, 2.0, 3.7}) {
    const Window window{scale, 40, 10, 300};
    const Reach r = reach(window, 20);
    const double radius = std::max(scale, 1.0);
    EXPECT_GE(r.first, std::floor(40 + 0.5 * scale - radius - 0.5));
    EXPECT_LE(r.first, 40 + 0.5 * scale - radius + 0.5);
    EXPECT_LE(r.last, std::ceil(40 + 19.5 * scale + radius + 1.5));
    EXPECT_GE(r.last, 40 + 19.5 * scale + radius - 0.5);
  }
}

TEST(Resize, RejectsInvalidArguments) {
  const std::vector<std::uint8_t> pixels(300);
  const ImageView image{pixels.data(), 10, 10, 3, 30};
  std::vector<std::uint8_t> out(48);
  Resizer resize;
  EXPECT_THROW(resize(image, whole(11, 4), whole(10, 4), 4, 4, out), ArgumentError);
  EXPECT_THROW(resize(image, whole(10, 4), {1, 0, -1, 10}, 4, 4, out), ArgumentError);
  EXPECT_THROW(resize(image, whole(10, 4), {1, 0, 5, 5}, 4, 4, out), ArgumentError);
  EXPECT_THROW(resize(image, whole(10, 4), whole(10, 4), 4, 5, out), ArgumentError);
  EXPECT_THROW(resize({pixels.data(), 6, 10, 5, 50}, whole(6, 4), whole(10, 4), 4, 4, out), ArgumentError);
}

}  // namespace athanor::resize_test
