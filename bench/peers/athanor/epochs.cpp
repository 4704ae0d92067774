#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "bench/peers/athanor/worker.h"
#include "data/loader.h"
#include "tensor/base/error.h"

// Short epochs of a set that is slow to open: bench/peers/pytorch/epochs.py is the same in PyTorch. Opening
// and reading sleep, so that neither takes a core from the other side or from whatever else the machine does.

namespace athanor::peers {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kSamples = 96, kBatch = 8, kSide = 8, kChannels = 3;
constexpr milliseconds kOpening{1500}, kReading{1};

/// Every thread that reads opens the set for itself first, as a process would.
class SlowToOpen final : public ImageDataset {
 public:
  std::int64_t size() const override { return kSamples; }
  const ImageSpec& spec() const override { return spec_; }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    thread_local std::int64_t opened = 0;  // the number of the set this thread has opened
    if (opened != number_) std::this_thread::sleep_for(kOpening);
    opened = number_;
    std::this_thread::sleep_for(kReading);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<std::uint8_t>(3 * i + 7 * static_cast<std::size_t>(index));
    }
    return index % 10;
  }

 private:
  static inline std::atomic<std::int64_t> made_{0};
  std::int64_t number_ = ++made_;
  ImageSpec spec_{kSide, kSide, kChannels, 10};
};

struct Epochs {
  SlowToOpen data;
  Loader loader;
  std::int64_t epoch = 0;

  explicit Epochs(int workers) : loader(data, {.batch_size = kBatch, .workers = workers}) {}

  void run() {
    loader.start_epoch(epoch++);
    Batch batch;
    std::int64_t rows = 0;
    while (loader.next(batch)) rows += batch.size();
    if (rows != kSamples) detail::fail<>("epochs: expected {} samples, but got {}", kSamples, rows);
  }

  /// How many samples there are; the sum of their labels; and what changes with any sample, byte or place.
  std::vector<double> check() {
    loader.start_epoch(epoch++);
    Batch batch;
    double rows = 0, labels = 0, weighted = 0;
    while (loader.next(batch)) {
      const std::vector<double> pixels = batch.images.to_vector();
      const std::vector<double> of = batch.labels.to_vector();
      for (std::size_t row = 0; row < of.size(); ++row, ++rows) {
        labels += (rows + 1) * of[row];
        for (std::size_t i = 0; i < kSide * kSide * kChannels; ++i) {
          weighted += (rows + 1) * static_cast<double>(i + 1) * pixels[row * kSide * kSide * kChannels + i];
        }
      }
    }
    return {rows, labels, weighted};
  }
};

Ready prepare(int workers) {
  const auto epochs = std::make_shared<Epochs>(workers);
  const std::vector<double> check = epochs->check();
  return {[epochs] { epochs->run(); }, check};
}

}  // namespace
}  // namespace athanor::peers

int main() {
  using namespace athanor::peers;
  std::vector<PeerCase> cases;
  for (const int workers : {0, 1, 2, 4, 6}) {
    cases.push_back({fmt::format("epochs/{}_workers", workers), 0, [workers] { return prepare(workers); }});
  }
  return serve(cases);
}
