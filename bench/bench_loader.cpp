#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <thread>

#include <unistd.h>

#include "bench/support/bench.h"
#include "bench/support/packed_images.h"
#include "data/decoded_dataset.h"
#include "data/formats/image_folder.h"
#include "data/formats/packed.h"
#include "data/in_memory.h"
#include "data/loader.h"
#include "data/synthetic.h"

// What feeding a step costs.
//
//   load       one batch of JPEG files, read by so many threads while the caller does nothing else: the
//              threads' speed. A row of 2 threads over one of 1 should take half as long.
//   packed     one batch of raw 32x32 images from a packed file in the page cache, as `load`; images per
//              second are 512 over the time
//   resident   one batch of a set in memory, copied by the caller
//   clock      the looks at the clock that a step's accounting takes
//   step       a step that computes for 30 ms, with its batch, inside an epoch and at the edge of one
//
// JPEG rows need ATHANOR_DATA_DIR/imagenet-sample.

namespace athanor::bench {
namespace {

constexpr std::int64_t kBatch = 16;

/// The few photographs of the sample, over and over.
struct Photos {
  Photos() {
    static int count = 0;  // the last row's may still be there
    folder = std::filesystem::temp_directory_path() / fmt::format("athanor-bench-{}-{}", getpid(), ++count);
    const std::filesystem::path sample =
        std::filesystem::path(std::getenv("ATHANOR_DATA_DIR")) / "imagenet-sample";
    std::filesystem::create_directories(folder / "photos");
    for (const auto& entry : std::filesystem::directory_iterator(sample)) {
      if (entry.path().extension() == ".JPEG")
        std::filesystem::create_symlink(entry.path(), folder / "photos" / entry.path().filename());
    }
    const ImageTransform middle{.height = 224, .width = 224, .shorter_side = 256};
    const auto files = std::make_shared<DecodedDataset>(std::make_shared<ImageFolder>(folder), middle);
    std::vector<std::int64_t> again(static_cast<std::size_t>(40 * kBatch));
    for (std::size_t i = 0; i < again.size(); ++i) again[i] = static_cast<std::int64_t>(i) % files->size();
    set = std::make_unique<Subset>(files, again);
  }
  ~Photos() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  Photos(const Photos&) = delete;
  Photos& operator=(const Photos&) = delete;

  std::filesystem::path folder;
  std::unique_ptr<Dataset> set;
};

/// A loader that goes through epoch after epoch.
struct Endless {
  Endless(const Dataset& data, const LoaderOptions& options) : loader(data, options) {}
  void next() {
    while (!loader.next(batch)) loader.start_epoch(loader.epoch() + 1);
  }
  Loader loader;
  Batch batch;
};

void add_load(int workers) {
  const std::string impl = workers == 0 ? "inline" : fmt::format("threads{}", workers);
  add({"load", "fwd", DType::u8, fmt::format("{}x224x224x3", kBatch), impl}, {}, [=] {
    const auto photos = std::make_shared<Photos>();
    const auto feed = std::make_shared<Endless>(
        *photos->set,
        LoaderOptions{.batch_size = kBatch, .shuffle = true, .workers = workers, .prefetch = 3});
    for (int i = 0; i < 6; ++i) feed->next();  // what was read ahead is used up
    return Prepared{[photos, feed] { feed->next(); }};
  });
}

void add_packed(int workers, bool check) {
  constexpr std::int64_t kRows = 512, kSide = PackedImages::kSide;
  const std::string how = workers == 0 ? "inline" : fmt::format("threads{}", workers);
  const double bytes = 2.0 * static_cast<double>(kRows) * static_cast<double>(PackedImages::kImageBytes);
  add({"packed", "fwd", DType::u8, shape_name({kRows, kSide, kSide, 3}), check ? how : how + "_unchecked"},
      {.bytes = bytes, .elements = static_cast<double>(kRows)}, [=] {
        const std::shared_ptr<PackedImages> images = PackedImages::shared();
        const auto data = std::make_shared<DecodedDataset>(
            std::make_shared<PackedStore>(images->path, PackedOptions{.check = check}),
            ImageTransform{.height = kSide, .width = kSide});
        const auto feed = std::make_shared<Endless>(
            *data, LoaderOptions{.batch_size = kRows, .shuffle = true, .training = true, .workers = workers});
        double error = 0;
        for (int step = 0; step < 10; ++step) {
          feed->next();
          const Batch& batch = feed->batch;
          const auto* const samples = batch.samples.data<std::int64_t>();
          for (std::int64_t i = 0; i < batch.size(); ++i) {
            const auto expected = images->image(samples[i]);
            const auto got = bytes_of(batch.images).subspan(static_cast<std::size_t>(i) * expected.size());
            if (!std::equal(expected.begin(), expected.end(), got.begin())) error = 1;
          }
        }
        return Prepared{[images, data, feed] { feed->next(); }, error, 0};
      });
}

void add_resident(std::int64_t batch, const ImageSpec& spec) {
  const double bytes = static_cast<double>(batch * spec.bytes());
  add({"resident", "fwd", DType::u8, shape_name({batch, spec.height, spec.width, spec.channels})},
      {.bytes = 2 * bytes}, [=] {
        const std::shared_ptr<Dataset> data = synthetic(spec, 4096);
        const auto feed =
            std::make_shared<Endless>(*data, LoaderOptions{.batch_size = batch, .shuffle = true});
        feed->next();
        return Prepared{[data, feed] { feed->next(); }};
      });
}

// Parts of a step in the trainer, and two looks of the loader's.
void add_clock() {
  add({"clock", "step", DType::f32, "9_looks"}, {}, [] {
    const auto sum = std::make_shared<std::int64_t>(0);
    return Prepared{[sum] {
      for (int i = 0; i < 9; ++i) *sum += std::chrono::steady_clock::now().time_since_epoch().count();
      benchmark::DoNotOptimize(*sum);
    }};
  });
}

/// Steps that compute for 30 ms, at both sides of an epoch's end or elsewhere.
void add_step(const char* which, bool edge) {
  const std::string name = Id{"step", "step", DType::u8, "30ms", which}.str();
  benchmark::RegisterBenchmark(
      name.c_str(),
      [edge](benchmark::State& state) {
        using Clock = std::chrono::steady_clock;
        const Photos photos;
        Loader loader(*photos.set,
                      {.batch_size = kBatch, .shuffle = true, .training = true, .workers = 1, .prefetch = 4});
        Batch batch;
        std::vector<double> seconds;
        std::int64_t epoch = 0, step = 0;
        while (state.KeepRunning()) {
          double took = 0;
          for (bool counted = false; !counted;) {
            const auto began = Clock::now();
            if (!loader.next(batch)) {
              loader.start_epoch(++epoch);
              step = 0;
              loader.next(batch);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            took = std::chrono::duration<double>(Clock::now() - began).count();
            counted = epoch > 0 && (step == 0) == edge;
            ++step;
          }
          seconds.push_back(took);
          state.SetIterationTime(took);
        }
        report(state, {}, {}, seconds, 0);
      })
      ->UseManualTime()
      ->Iterations(edge ? 8 : 100)
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

void register_all() {
  const char* data = std::getenv("ATHANOR_DATA_DIR");
  if (data && std::filesystem::exists(std::filesystem::path(data) / "imagenet-sample")) {
    for (const int workers : {0, 1, 2}) add_load(workers);
    add_step("inside", false);
    add_step("edge", true);
  }
  for (const int workers : {0, 1, 2}) add_packed(workers, true);
  add_packed(2, false);
  add_resident(32, {8, 8, 1, 10});
  add_resident(128, {32, 32, 3, 10});
  add_clock();
}

}  // namespace athanor::bench
