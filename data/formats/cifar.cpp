#include "data/formats/cifar.h"

#include <string>
#include <vector>

#include "data/formats/detail/input_file.h"
#include "tensor/error.h"

namespace athanor {
namespace {

constexpr std::int64_t kSide = 32, kPlane = kSide * kSide, kChannels = 3;

/// A record is `label_bytes` labels, the last of which counts, then three planes of pixels.
struct Layout {
  const char* name;
  std::int64_t classes;
  std::int64_t label_bytes;
  std::int64_t records;  // in each file
};
constexpr Layout kCifar10{"cifar10", 10, 1, 10'000};

Layout cifar100_layout(Part part) {
  return {"cifar100", 100, 2, part == Part::train ? 50'000 : 10'000};
}

void append(const std::filesystem::path& path, const Layout& layout, std::vector<std::uint8_t>& pixels,
            std::vector<std::int64_t>& labels) {
  InputFile file(path, layout.name, fmt::format("fetch the file again: scripts/get_data.sh {}", layout.name));
  std::vector<std::uint8_t> record(static_cast<std::size_t>(layout.label_bytes + kChannels * kPlane));
  std::size_t out = pixels.size();
  pixels.resize(out + static_cast<std::size_t>(layout.records * kChannels * kPlane));
  for (std::int64_t i = 0; i < layout.records; ++i) {
    const std::int64_t start = file.offset();
    file.read(record, fmt::format("record {} of {}", i, layout.records));
    const int label = record[static_cast<std::size_t>(layout.label_bytes - 1)];
    if (label >= layout.classes) {
      file.fail(start + layout.label_bytes - 1,
                fmt::format("the label must be below {}, but is {}", layout.classes, label));
    }
    labels.push_back(label);
    const std::uint8_t* planes = record.data() + layout.label_bytes;
    for (std::int64_t p = 0; p < kPlane; ++p) {
      for (std::int64_t c = 0; c < kChannels; ++c) pixels[out++] = planes[c * kPlane + p];
    }
  }
  file.expect_end();
}

std::unique_ptr<InMemoryDataset> load(const std::filesystem::path& folder,
                                      std::initializer_list<const char*> names, const Layout& layout) {
  const std::string advice =
      fmt::format("fetch it with scripts/get_data.sh {}, or name its folder with --data-dir", layout.name);
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  pixels.reserve(names.size() * static_cast<std::size_t>(layout.records * kChannels * kPlane));
  for (const char* name : names) {
    append(find_plain_or_gz(folder, name, layout.name, advice), layout, pixels, labels);
  }
  const ImageSpec spec{kSide, kSide, kChannels, layout.classes};
  return std::make_unique<InMemoryDataset>(spec, std::move(pixels), std::move(labels));
}

}  // namespace

std::unique_ptr<InMemoryDataset> cifar10(const std::filesystem::path& folder, Part part) {
  if (part == Part::test) return load(folder, {"test_batch.bin"}, kCifar10);
  return load(
      folder,
      {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      kCifar10);
}

std::unique_ptr<InMemoryDataset> cifar100(const std::filesystem::path& folder, Part part) {
  return load(folder, {part == Part::train ? "train.bin" : "test.bin"}, cifar100_layout(part));
}

}  // namespace athanor
