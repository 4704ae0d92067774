#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "bench/peers/athanor/worker.h"
#include "data/decoded_dataset.h"
#include "kernels/context.h"
#include "tensor/error.h"

// Photos from files to batches of bytes: bench/peers/pytorch/loader.py is the same in PyTorch. Each run reads
// the first 256 files of a folder of photos, decodes them and brings them to 224 x 224.

namespace athanor::peers {
namespace {

constexpr std::int64_t kImages = 256, kSide = 224;

/// The files of one folder.
class Photos final : public SampleStore {
 public:
  Photos() {
    const char* root = std::getenv("ATHANOR_DATA_DIR");
    const std::filesystem::path folder =
        std::filesystem::path(root ? root : "data-cache") / "imagenet-sample";
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".JPEG") paths_.push_back(entry.path().string());
    }
    std::sort(paths_.begin(), paths_.end());
    if (std::ssize(paths_) < kImages) {
      detail::fail<IoError>("loader: {} must hold {} .JPEG files, but has {}; set ATHANOR_DATA_DIR",
                            folder.string(), kImages, paths_.size());
    }
    paths_.resize(kImages);
  }
  std::int64_t size() const override { return kImages; }
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

/// A pass over all images by as many threads as the other side has workers.
struct Pass {
  DecodedDataset data;
  bool training;
  std::vector<std::uint8_t> batches;
  std::vector<std::int64_t> labels;
  std::int64_t epoch = 0;

  Pass(const ImageTransform& transform, const ImageTransform& evaluation, bool trains)
      : data(std::make_shared<Photos>(), transform, evaluation, 1),
        training(trains),
        batches(static_cast<std::size_t>(kImages * data.spec().bytes())),
        labels(kImages) {}

  void run() {
    const auto bytes = static_cast<std::size_t>(data.spec().bytes());
    std::atomic<std::int64_t> next{0};
    const auto work = [&] {
      for (std::int64_t i = next++; i < kImages; i = next++) {
        const std::span<std::uint8_t> pixels{batches.data() + static_cast<std::size_t>(i) * bytes, bytes};
        labels[static_cast<std::size_t>(i)] =
            training ? data.read_in_epoch(i, epoch, pixels) : data.read(i, pixels);
      }
    };
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(cpu_context().threads()));
    for (int t = 0; t < cpu_context().threads(); ++t) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
    ++epoch;
  }
};

Ready prepare(bool training) {
  const ImageTransform drawn{.height = kSide, .width = kSide, .random_crop = RandomResizedCrop{}};
  const ImageTransform middle{.height = kSide, .width = kSide, .shorter_side = 256};
  const auto pass = std::make_shared<Pass>(training ? drawn : middle, middle, training);
  pass->run();
  double sum = 0, labels = 0;
  for (const std::uint8_t byte : pass->batches) sum += byte;
  for (const std::int64_t label : pass->labels) labels += static_cast<double>(label);
  std::vector<double> check{static_cast<double>(kImages), labels};
  // Random crops differ; of the middles, the mean brightness is the same.
  if (!training) check.push_back(std::round(sum / static_cast<double>(pass->batches.size())));
  return {[pass] { pass->run(); }, check};
}

}  // namespace
}  // namespace athanor::peers

int main() {
  using namespace athanor;
  const double bytes = static_cast<double>(peers::kImages * peers::kSide * peers::kSide * 3);
  return peers::serve({{"crop224", bytes, [] { return peers::prepare(true); }},
                       {"middle224", bytes, [] { return peers::prepare(false); }}});
}
