// Draws a folder of photo-like JPEGs for the ladder: the embedded handwritten digits, each enlarged somewhere
// on a picture with soft shapes behind it and grain, as a camera has it. build/cpu/bin/ladder_jpegs photos

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "data/digits.h"
#include "data/formats/image_folder.h"
#include "data/image/jpeg.h"
#include "tensor/base/error.h"
#include "tensor/philox.h"
#include "trainer/readable.h"
#include "trainer/run_main.h"

namespace athanor::examples {
namespace {

struct Options {
  std::filesystem::path out;
  std::int64_t side = 1024;  // pixels
  std::int64_t limit = 0;    // images of each part; 0: all
  int quality = 90;
};

/// Draws of one picture: number `index` in [0, 1).
struct Draws {
  std::uint64_t seed;
  float operator()(std::uint64_t index) const {
    return static_cast<float>(philox_word({seed, 0}, index) >> 8) * 0x1p-24f;
  }
};

float smooth(float t) {
  return t * t * (3 - 2 * t);
}
float between(float a, float b, float t) {
  return a + (b - a) * t;
}

/// Random values on a square grid of `cells` with smooth interpolation: a row of them for one y.
class SoftShapes {
 public:
  SoftShapes(Draws draws, std::uint64_t first, int cells) : cells_(cells) {
    for (int i = 0; i < (cells + 1) * (cells + 1); ++i)
      values_.push_back(draws(first + static_cast<std::uint64_t>(i)));
  }
  /// The value at x and y in [0, 1).
  float at(float x, float y) const {
    const float cx = x * static_cast<float>(cells_), cy = y * static_cast<float>(cells_);
    const int ix = static_cast<int>(cx), iy = static_cast<int>(cy);
    const float tx = smooth(cx - static_cast<float>(ix)), ty = smooth(cy - static_cast<float>(iy));
    const auto value = [&](int row, int column) {
      return values_[static_cast<std::size_t>(row * (cells_ + 1) + column)];
    };
    return between(between(value(iy, ix), value(iy, ix + 1), tx),
                   between(value(iy + 1, ix), value(iy + 1, ix + 1), tx), ty);
  }

 private:
  int cells_;
  std::vector<float> values_;
};

/// How much ink the digit has at x and y, in pixels of its 8x8: between them, linear.
float ink(std::span<const std::uint8_t> digit, float x, float y) {
  const auto pixel = [&](int row, int column) {
    const bool outside = row < 0 || row > 7 || column < 0 || column > 7;
    return outside ? 0.f : static_cast<float>(digit[static_cast<std::size_t>(8 * row + column)]) / 255;
  };
  const float fx = std::floor(x), fy = std::floor(y);
  const int ix = static_cast<int>(fx), iy = static_cast<int>(fy);
  return between(between(pixel(iy, ix), pixel(iy, ix + 1), x - fx),
                 between(pixel(iy + 1, ix), pixel(iy + 1, ix + 1), x - fx), y - fy);
}

/// side x side x 3.
std::vector<std::uint8_t> picture(std::span<const std::uint8_t> digit, std::int64_t side,
                                  std::uint64_t seed) {
  const Draws draws{seed};
  const SoftShapes coarse(draws, 100, 5), middle(draws, 200, 17), fine(draws, 1000, 96);
  // A digit of six tenths of the picture or more, in a dark colour on a light one.
  const float size = between(0.6f, 0.95f, draws(0)), left = (1 - size) * draws(1),
              top = (1 - size) * draws(2);
  std::array<float, 3> paper{}, pen{};
  for (std::size_t c = 0; c < 3; ++c) {
    pen[c] = between(20, 100, draws(4 + c));
    paper[c] = between(150, 235, draws(8 + c));
  }
  std::vector<std::uint8_t> pixels;
  pixels.reserve(static_cast<std::size_t>(side * side * 3));
  std::uint32_t grain = static_cast<std::uint32_t>(seed * 2654435761u) | 1u;
  for (std::int64_t row = 0; row < side; ++row) {
    for (std::int64_t column = 0; column < side; ++column) {
      const float x = (static_cast<float>(column) + 0.5f) / static_cast<float>(side),
                  y = (static_cast<float>(row) + 0.5f) / static_cast<float>(side);
      const float shade =
          50 * (coarse.at(x, y) - 0.5f) + 40 * (middle.at(x, y) - 0.5f) + 24 * (fine.at(x, y) - 0.5f);
      const float covered = ink(digit, (x - left) / size * 8 - 0.5f, (y - top) / size * 8 - 0.5f);
      const float stroke = smooth(std::clamp((covered - 0.25f) * 3, 0.f, 1.f));
      for (std::size_t c = 0; c < 3; ++c) {
        grain ^= grain << 13, grain ^= grain >> 17, grain ^= grain << 5;  // Marsaglia 2003, xorshift32
        const float noise = static_cast<float>(grain >> 8) * 0x1p-24f - 0.5f;
        const float value = between(paper[c], pen[c], stroke) + shade + 14 * noise;
        pixels.push_back(static_cast<std::uint8_t>(std::clamp(value, 0.f, 255.f)));
      }
    }
  }
  return pixels;
}

void write(const Options& options, Split split, const std::filesystem::path& folder) {
  const auto data = digits(split);
  const std::int64_t count = options.limit > 0 ? std::min(options.limit, data->size()) : data->size();
  const std::size_t team = std::max(1u, std::thread::hardware_concurrency());
  ImageFolderWriter writer(folder, data->class_names());
  std::vector<std::vector<std::byte>> files(team);
  // With a limit, all over the data set: it begins with no class.
  const auto index_of = [&](std::int64_t i) { return i * data->size() / count; };
  std::int64_t bytes = 0;
  for (std::int64_t first = 0; first < count; first += static_cast<std::int64_t>(team)) {
    const std::int64_t here = std::min(count - first, static_cast<std::int64_t>(team));
    {
      std::vector<std::jthread> threads;
      for (std::int64_t k = 0; k < here; ++k) {
        threads.emplace_back([&, k] {
          const std::int64_t index = index_of(first + k);
          std::array<std::uint8_t, 64> digit{};
          (void)data->read(index, digit);
          const std::uint64_t seed = static_cast<std::uint64_t>(2 * index + (split == Split::test ? 1 : 0));
          const auto pixels = picture(digit, options.side, seed);
          encode_jpeg({pixels.data(), options.side, options.side, 3, 3 * options.side}, options.quality,
                      files[static_cast<std::size_t>(k)]);
        });
      }
    }
    for (std::int64_t k = 0; k < here; ++k) {
      const auto& file = files[static_cast<std::size_t>(k)];
      bytes += std::ssize(file);
      writer.add({.bytes = file, .codec = Codec::jpeg, .label = data->label(index_of(first + k))});
    }
  }
  writer.finish();
  fmt::print("{}: {} JPEGs of {}x{}, {:.0f} MB\n", folder.string(), with_commas(count), options.side,
             options.side, static_cast<double>(bytes) * 1e-6);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Draws a folder of JPEGs, DIR/train and DIR/val with a folder for each class: handwritten digits on "
      "photo-like pictures. Every run draws the same pictures.");
  app.add_option("DIR", options.out, "Folder to write; must not hold train/ or val/ yet")->required();
  app.add_option("--side", options.side, "Width and height in pixels [1024]")->check(CLI::Range(16, 8192));
  app.add_option("--limit", options.limit, "Most images in each of train/ and val/; 0: all [0]")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--quality", options.quality, "JPEG quality [90]")->check(CLI::Range(1, 100));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitBadInput;
  }
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error)
    detail::fail<IoError>("ladder_jpegs: {} must be a folder that can be created, but got: {}",
                          options.out.string(), error.message());
  write(options, Split::train, options.out / "train");
  write(options, Split::test, options.out / "val");
  return kExitDone;
}

}  // namespace
}  // namespace athanor::examples

int main(int argc, char** argv) {
  return athanor::run_main(argc, argv, athanor::examples::run);
}
