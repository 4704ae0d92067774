#include "data/formats/mnist.h"

#include <string>

#include "data/formats/detail/input_file.h"
#include "tensor/error.h"

namespace athanor {
namespace {

// IDX: a magic number (two zero bytes, the element type, the number of dimensions), the dimensions as
// big-endian 32-bit numbers, then the elements.
constexpr std::uint32_t kUnsignedBytes = 0x08;
constexpr std::int64_t kMaxSide = 4096, kMaxImages = 100'000'000;
constexpr char kAdvice[] = "fetch the files again: scripts/get_data.sh mnist";
constexpr std::int64_t kClasses = 10;

void check_magic(InputFile& file, std::uint32_t rank) {
  const std::uint32_t expected = kUnsignedBytes << 8 | rank, magic = file.read_u32("the magic number");
  if (magic != expected) {
    file.fail(0, fmt::format("the magic number must be {:#010x}, but is {:#010x}", expected, magic));
  }
}

std::int64_t read_size(InputFile& file, const char* what, std::int64_t max) {
  const std::int64_t offset = file.offset(), value = file.read_u32(what);
  if (value < 1 || value > max) {
    file.fail(offset, fmt::format("{} must be in [1, {}], but is {}", what, max, value));
  }
  return value;
}

std::vector<std::int64_t> read_labels(const std::filesystem::path& path, std::int64_t count) {
  InputFile file(path, "mnist", kAdvice);
  check_magic(file, 1);
  if (const std::int64_t n = read_size(file, "the number of labels", kMaxImages); n != count) {
    file.fail(4, fmt::format("there must be one label for each of {} images, but there are {}", count, n));
  }
  const std::int64_t start = file.offset();
  const std::vector<std::uint8_t> bytes = file.read_vector(count, "labels");
  file.expect_end();
  for (std::int64_t i = 0; i < count; ++i) {
    const int label = bytes[static_cast<std::size_t>(i)];
    if (label >= kClasses) {
      file.fail(start + i, fmt::format("the label must be below {}, but is {}", kClasses, label));
    }
  }
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::unique_ptr<InMemoryDataset> mnist(const std::filesystem::path& folder, Part part) {
  const std::string prefix = part == Part::train ? "train" : "t10k";
  const std::string advice = "fetch it with scripts/get_data.sh mnist, or name its folder with --data-dir";
  const auto images = find_plain_or_gz(folder, prefix + "-images-idx3-ubyte", "mnist", advice);
  const auto labels = find_plain_or_gz(folder, prefix + "-labels-idx1-ubyte", "mnist", advice);

  InputFile file(images, "mnist", kAdvice);
  check_magic(file, 3);
  const std::int64_t count = read_size(file, "the number of images", kMaxImages);
  ImageSpec spec{0, 0, 1, kClasses};
  spec.height = read_size(file, "the number of rows", kMaxSide);
  spec.width = read_size(file, "the number of columns", kMaxSide);
  std::vector<std::uint8_t> pixels = file.read_vector(count * spec.bytes(), "pixels");
  file.expect_end();
  return std::make_unique<InMemoryDataset>(spec, std::move(pixels), read_labels(labels, count));
}

}  // namespace athanor
