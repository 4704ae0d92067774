#include "data/loader.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "bench/peers/athanor/worker.h"
#include "data/convert.h"
#include "data/decoded_dataset.h"
#include "data/formats/cifar.h"
#include "data/formats/packed.h"
#include "data/formats/packed_writer.h"
#include "kernels/cpu/context.h"
#include "tensor/base/error.h"

// From files to batches of bytes, by as many threads as the other side has workers:
// bench/peers/pytorch/loader.py is the same in PyTorch.
//
//   crop224, crop160     the first 256 files of a folder of photos, a random part of each brought to
//                        224 x 224 or 160 x 160, in batches of 64
//   middle224            the same files as in evaluation: the shorter side to 256, the middle cut out
//   cifar10              the first 5,000 images of CIFAR-10's training set in random order, in batches of
//                        128; ours from a packed file with every CRC checked

namespace athanor::peers {
namespace {

constexpr std::int64_t kPhotos = 256, kPhotosAtOnce = 64;
constexpr std::int64_t kSmall = 5'000, kSmallAtOnce = 128, kSmallSide = 32;

std::filesystem::path data_folder(const char* name) {
  const char* const root = std::getenv("ATHANOR_DATA_DIR");
  return std::filesystem::path(root ? root : "data-cache") / name;
}

/// The files of one folder.
class Photos final : public Dataset {
 public:
  Photos() {
    const std::filesystem::path folder = data_folder("imagenet-sample");
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".JPEG") paths_.push_back(entry.path().string());
    }
    std::sort(paths_.begin(), paths_.end());
    if (std::ssize(paths_) < kPhotos) {
      detail::fail<IoError>("loader: {} must hold {} .JPEG files, but has {}; set ATHANOR_DATA_DIR",
                            folder.string(), kPhotos, paths_.size());
    }
    paths_.resize(kPhotos);
  }
  std::int64_t size() const override { return kPhotos; }
  const ImageSpec& spec() const override { return spec_; }
  std::string where(std::int64_t index) const override { return paths_[static_cast<std::size_t>(index)]; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    std::ifstream in(where(index), std::ios::binary | std::ios::ate);
    const std::int64_t bytes = in ? static_cast<std::int64_t>(in.tellg()) : 0;
    if (std::ssize(scratch) < bytes) scratch.resize(static_cast<std::size_t>(bytes));
    in.seekg(0);
    in.read(reinterpret_cast<char*>(scratch.data()), bytes);
    return {.bytes = {scratch.data(), static_cast<std::size_t>(bytes)},
            .codec = Codec::jpeg,
            .label = index % 10};
  }

 private:
  std::vector<std::string> paths_;
  ImageSpec spec_{0, 0, 0, 10};
};

/// CIFAR-10 in a packed file that is removed when it is no longer read.
class PackedCifar final : public Dataset {
 public:
  PackedCifar() {
    PackedWriter writer(path_);
    convert(*open_cifar(data_folder("cifar10"), 10), writer, {.limit = kSmall});
    writer.finish();
    store_ = std::make_unique<PackedStore>(path_);
  }
  ~PackedCifar() override {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  std::int64_t size() const override { return store_->size(); }
  const ImageSpec& spec() const override { return store_->spec(); }
  std::string where(std::int64_t index) const override { return store_->where(index); }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    return store_->fetch(index, scratch);
  }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("athanor-peer-" + std::to_string(::getpid()) + ".athp");
  std::unique_ptr<PackedStore> store_;
};

/// A loader that stays, as the other side's does, and rests between passes, when it is the other side's turn.
class Passes {
 public:
  Passes(std::shared_ptr<DecodedDataset> data, LoaderOptions options)
      : data_(std::move(data)), loader_(*data_, resting(std::move(options))) {}

  /// A pass over all images.
  template <class F> void once(const F& see) {
    loader_.start_epoch(epoch_++);
    while (loader_.next(batch_)) see(batch_);
  }

 private:
  static LoaderOptions resting(LoaderOptions options) {
    options.workers = cpu_context().threads();
    options.epochs = 1;  // in every later one, nothing is read ahead either
    return options;
  }

  std::shared_ptr<DecodedDataset> data_;
  Loader loader_;
  Batch batch_;
  std::int64_t epoch_ = 0;
};

/// What both sides must agree on: how many, the labels' sum and, but for unit 0, the mean brightness in such
/// units: where images are drawn it differs, and where they are scaled, by a little.
Ready ready(const std::shared_ptr<DecodedDataset>& data, const LoaderOptions& options, double unit) {
  const auto passes = std::make_shared<Passes>(data, options);
  double count = 0, labels = 0, sum = 0, bytes = 0;
  passes->once([&](const Batch& batch) {
    const std::span<const std::uint8_t> pixels(batch.images.data<std::uint8_t>(),
                                               static_cast<std::size_t>(batch.images.numel()));
    for (const std::uint8_t byte : pixels) sum += byte;
    for (const double label : batch.labels.to_vector()) labels += label;
    bytes += static_cast<double>(pixels.size());
    count += static_cast<double>(batch.size());
  });
  std::vector<double> check{count, labels};
  if (unit > 0) check.push_back(std::round(sum / bytes / unit) * unit);
  return {[=] { passes->once([](const Batch&) {}); }, check};
}

Ready photos(bool training, std::int64_t side) {
  const ImageTransform drawn{.height = side, .width = side, .random_crop = RandomResizedCrop{}};
  const ImageTransform middle{.height = side, .width = side, .shorter_side = 256};
  const auto data =
      std::make_shared<DecodedDataset>(std::make_shared<Photos>(), training ? drawn : middle, middle, 1);
  return ready(data, {.batch_size = kPhotosAtOnce, .training = training}, training ? 0 : 1);
}

Ready cifar() {
  const ImageTransform as_is{.height = kSmallSide, .width = kSmallSide};
  const auto data = std::make_shared<DecodedDataset>(std::make_shared<PackedCifar>(), as_is);
  return ready(data, {.batch_size = kSmallAtOnce, .shuffle = true, .seed = 1, .training = true}, 0.01);
}

}  // namespace
}  // namespace athanor::peers

int main() {
  using namespace athanor::peers;
  const auto photo_bytes = [](std::int64_t side) { return static_cast<double>(kPhotos * side * side * 3); };
  const auto small_bytes = static_cast<double>(kSmall * kSmallSide * kSmallSide * 3);
  return serve({{"crop224", photo_bytes(224), [] { return photos(true, 224); }},
                {"crop160", photo_bytes(160), [] { return photos(true, 160); }},
                {"middle224", photo_bytes(224), [] { return photos(false, 224); }},
                {"cifar10", small_bytes, cifar}});
}
