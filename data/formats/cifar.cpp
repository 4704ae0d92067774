#include "data/formats/cifar.h"

#include <string>

#include "data/detail/thread_scratch.h"
#include "data/formats/detail/indexed_store.h"
#include "data/formats/join.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

constexpr std::int64_t kCifarSide = 32, kCifarPlane = kCifarSide * kCifarSide, kCifarChannels = 3,
                       kCifarImage = kCifarChannels * kCifarPlane;

/// A record is one label or, in CIFAR-100, a coarse and a fine one; then three planes of pixels.
std::int64_t label_bytes(std::int64_t classes) {
  ATH_CHECK(classes == 10 || classes == 100, "cifar: classes must be 10 or 100, but got {}", classes);
  return classes == 10 ? 1 : 2;
}

/// The planes of a record as an image, channels last.
StoredSample read_record(const detail::FileBytes& file, const detail::IndexEntry& at,
                         std::vector<std::byte>& scratch) {
  detail::ThreadScratch record;
  const std::byte* planes =
      file.at(at.offset, at.bytes, "a record", record.bytes()).data() + at.bytes - kCifarImage;
  scratch.resize(static_cast<std::size_t>(kCifarImage));
  std::byte* to = scratch.data();
  for (std::int64_t p = 0; p < kCifarPlane; ++p) {
    for (std::int64_t c = 0; c < kCifarChannels; ++c) *to++ = planes[c * kCifarPlane + p];
  }
  return {scratch, Codec::raw, kCifarSide, kCifarSide, kCifarChannels, at.label};
}

/// `records`: required number; 0: any.
std::unique_ptr<Dataset> open_file(const std::filesystem::path& path, std::int64_t classes,
                                   std::int64_t records) {
  const auto head = static_cast<std::int16_t>(label_bytes(classes));
  const std::int64_t record = head + kCifarImage;
  const auto file =
      std::make_shared<detail::FileBytes>(path, "cifar", "fetch or write the file again, or gunzip it");
  const std::int64_t bytes = file->stated_size();
  if (bytes == 0 || bytes % record != 0 || (records > 0 && bytes != records * record)) {
    file->fail(std::min(bytes, records > 0 ? records * record : bytes / record * record),
               "the file must be {} records of {} bytes, but has {} bytes",
               records > 0 ? std::to_string(records) : "one or more", record, bytes);
  }
  file->expand(bytes);
  file->must_have(0, bytes, "records");
  file->must_end_at(bytes);
  std::vector<detail::IndexEntry> entries;
  detail::FilePages pages(*file);
  for (std::int64_t at = 0; at < bytes; at += record) {
    const std::int64_t label_at = at + record - kCifarImage - 1;
    const auto label = std::to_integer<std::int64_t>(pages.at(label_at, 1, "a label")[0]);
    if (const auto bad = detail::bad_label(label, classes)) file->fail(label_at, "{}", *bad);
    entries.push_back({at, record, label, Codec::raw, head});
  }
  const ImageSpec spec{kCifarSide, kCifarSide, kCifarChannels, classes};
  return std::make_unique<detail::IndexedStore>(file, spec, std::move(entries), read_record);
}

/// The files of `split`, `records` in each.
std::unique_ptr<Dataset> open_folder(const std::filesystem::path& folder, std::int64_t classes, Split split,
                                     std::int64_t records) {
  std::vector<std::string> names{split == Split::train ? "train.bin" : "test.bin"};
  if (classes == 10 && split == Split::test) names = {"test_batch.bin"};
  if (classes == 10 && split == Split::train) {
    names.clear();
    for (int i = 1; i <= 5; ++i) names.push_back(fmt::format("data_batch_{}.bin", i));
  }
  const std::string advice =
      fmt::format("fetch it with scripts/get_data.sh cifar{}, or name its folder with --data-dir", classes);
  std::vector<std::unique_ptr<Dataset>> files;
  for (const std::string& name : names) {
    const auto file = detail::find_plain_or_gz(folder, name, "cifar", advice);
    files.push_back(open_file(file, classes, records));
  }
  return join(std::move(files));
}

}  // namespace

std::unique_ptr<InMemoryDataset> cifar10(const std::filesystem::path& folder, Split split) {
  return std::make_unique<InMemoryDataset>(
      *open_folder(folder, 10, split, 10'000),
      std::vector<std::string>{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse",
                               "ship", "truck"});
}

std::unique_ptr<InMemoryDataset> cifar100(const std::filesystem::path& folder, Split split) {
  return std::make_unique<InMemoryDataset>(
      *open_folder(folder, 100, split, split == Split::train ? 50'000 : 10'000));
}

std::unique_ptr<Dataset> open_cifar(const std::filesystem::path& path, std::int64_t classes, Split split) {
  label_bytes(classes);
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? open_folder(path, classes, split, 0)
                                                    : open_file(path, classes, 0);
}

}  // namespace athanor
