#include "data/formats/cifar.h"

#include <string>

#include "data/formats/detail/dense_store.h"
#include "data/formats/detail/file_bytes.h"
#include "data/formats/join.h"
#include "tensor/error.h"

namespace athanor {
namespace {

constexpr std::int64_t kSide = 32, kPlane = kSide * kSide, kChannels = 3, kImage = kChannels * kPlane;

std::int64_t label_bytes(std::int64_t classes) {
  ATH_CHECK(classes == 10 || classes == 100, "cifar: classes must be 10 or 100, but got {}", classes);
  return classes == 10 ? 1 : 2;
}

/// A record is one label or, of CIFAR-100, a coarse and a fine one; then three planes of pixels.
class CifarStore final : public Dataset {
 public:
  /// `records`: how many there must be; 0: any number.
  CifarStore(const std::filesystem::path& path, std::int64_t classes, std::int64_t records)
      : label_bytes_(label_bytes(classes)),
        record_(label_bytes_ + kImage),
        spec_{kSide, kSide, kChannels, classes},
        file_(path, "cifar", "fetch or write the file again") {
    const std::int64_t bytes = file_.stated_size();
    if (bytes == 0 || bytes % record_ != 0 || (records > 0 && bytes != records * record_)) {
      file_.fail(std::min(bytes, records > 0 ? records * record_ : bytes / record_ * record_),
                 fmt::format("the file must be {} records of {} bytes, but has {} bytes",
                             records > 0 ? std::to_string(records) : "one or more", record_, bytes));
    }
    file_.expand(bytes);
    file_.at(0, bytes, "records");
    if (file_.size() > bytes) file_.fail(bytes, "the file must end here, but goes on; gunzip it first");
    for (std::int64_t i = 0; i < size(); ++i) {
      if (const auto bad = detail::bad_label(label(i), classes)) file_.fail(label_offset(i), *bad);
    }
  }

  std::int64_t size() const override { return file_.size() / record_; }
  const ImageSpec& spec() const override { return spec_; }
  std::string where(std::int64_t index) const override { return file_.where(index * record_); }
  bool resident() const override { return true; }
  void will_need(std::int64_t first, std::int64_t count) const override {
    if (first >= 0 && first < size())
      file_.will_need(first * record_, std::min(count, size() - first) * record_);
  }

  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    detail::check_index(index, size(), "store");
    scratch.resize(static_cast<std::size_t>(kImage));
    const std::byte* planes = file_.bytes().data() + index * record_ + label_bytes_;
    std::byte* to = scratch.data();
    for (std::int64_t p = 0; p < kPlane; ++p) {
      for (std::int64_t c = 0; c < kChannels; ++c) *to++ = planes[c * kPlane + p];
    }
    return {scratch, Codec::raw, kSide, kSide, kChannels, label(index)};
  }

 private:
  std::int64_t label_offset(std::int64_t index) const { return index * record_ + label_bytes_ - 1; }
  std::int64_t label(std::int64_t index) const {
    return std::to_integer<std::int64_t>(file_.bytes()[static_cast<std::size_t>(label_offset(index))]);
  }

  std::int64_t label_bytes_, record_;
  ImageSpec spec_;
  detail::FileBytes file_;
};

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
    files.push_back(std::make_unique<CifarStore>(file, classes, records));
  }
  return join(std::move(files));
}

}  // namespace

std::unique_ptr<InMemoryDataset> cifar10(const std::filesystem::path& folder, Split split) {
  return std::make_unique<InMemoryDataset>(*open_folder(folder, 10, split, 10'000));
}

std::unique_ptr<InMemoryDataset> cifar100(const std::filesystem::path& folder, Split split) {
  return std::make_unique<InMemoryDataset>(
      *open_folder(folder, 100, split, split == Split::train ? 50'000 : 10'000));
}

std::unique_ptr<Dataset> open_cifar(const std::filesystem::path& path, std::int64_t classes, Split split) {
  label_bytes(classes);
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? open_folder(path, classes, split, 0)
                                                    : std::make_unique<CifarStore>(path, classes, 0);
}

}  // namespace athanor
