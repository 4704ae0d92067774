#include "data/digits.h"

#include <array>
#include <charconv>
#include <cstddef>

#include "data/formats/detail/file_bytes.h"
#include "tensor/base/error.h"

namespace athanor {

// data/digits/digits.csv.gz, embedded by cmake/embed.cmake.
extern const unsigned char kDigitsCsvGz[];
extern const std::size_t kDigitsCsvGzBytes;

namespace {

constexpr ImageSpec kSpec{8, 8, 1, 10};
constexpr int kGreyLevels = 16;

/// Number of images of each class; a fifth of them, 360 in all, is for testing.
constexpr std::array<std::int64_t, 10> kClassSize{178, 182, 177, 183, 181, 182, 181, 179, 174, 180};
constexpr std::array<std::int64_t, 10> kTestSize{36, 37, 35, 37, 36, 36, 36, 36, 35, 36};

/// Reads one number and the separator after it.
int next_number(const char*& at, const char* end) {
  int value = -1;
  const auto [after, error] = std::from_chars(at, end, value);
  ATH_CHECK(error == std::errc() && after != end, "digits: the embedded file must contain numbers");
  at = after + 1;
  return value;
}

}  // namespace

std::unique_ptr<InMemoryDataset> digits(Split split) {
  constexpr std::int64_t kMax = 1 << 20;
  const std::vector<std::byte> csv =
      detail::FileBytes("embedded", {kDigitsCsvGz, kDigitsCsvGz + kDigitsCsvGzBytes}, "digits", "build again")
          .head(kMax)
          .all();
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  std::array<std::int64_t, 10> seen{};
  const char* at = reinterpret_cast<const char*>(csv.data());
  const char* const end = at + csv.size();
  while (at < end) {
    std::array<std::uint8_t, 64> image;
    for (std::uint8_t& pixel : image) {
      pixel = static_cast<std::uint8_t>((next_number(at, end) * 255 + kGreyLevels / 2) / kGreyLevels);
    }
    const int label = next_number(at, end);
    const auto c = static_cast<std::size_t>(label);
    const std::int64_t k = seen.at(c)++;
    const bool test = (k + 1) * kTestSize[c] / kClassSize[c] > k * kTestSize[c] / kClassSize[c];
    if (test != (split == Split::test)) continue;
    pixels.insert(pixels.end(), image.begin(), image.end());
    labels.push_back(label);
  }
  return std::make_unique<InMemoryDataset>(kSpec, std::move(pixels), std::move(labels));
}

}  // namespace athanor
