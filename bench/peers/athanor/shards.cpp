// Our side of bench/peers/shards.py: peer_shards SHARDS IMAGES WORKERS opens a set in several files, and
// reads that many images of its first epoch, in random order by pages: a random part of each, 224 x 224, in
// batches of 64. Prints what it took, as JSON.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include <fmt/format.h>

#include "data/decoded_dataset.h"
#include "data/formats/open.h"
#include "data/loader.h"

namespace {

using namespace athanor;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void measure(const char* shards, std::int64_t images, int workers) {
  const Clock::time_point start = Clock::now();
  const std::shared_ptr<const Dataset> stored = open_samples(shards);
  const double opened = seconds_since(start);
  const ImageTransform middle{.height = 224, .width = 224};
  const DecodedDataset data(stored, {.height = 224, .width = 224, .random_crop = RandomResizedCrop{}}, middle,
                            1);
  Loader loader(data, {.batch_size = 64,
                       .shuffle = true,
                       .training = true,
                       .workers = workers,
                       .epochs = 1,
                       .order = Order::page_random});
  Batch batch;
  std::int64_t seen = 0, labels = 0;
  while (seen < images && loader.next(batch)) {
    seen += batch.size();
    for (std::int64_t i = 0; i < batch.size(); ++i) labels += batch.labels.data<std::int64_t>()[i];
  }
  fmt::print(R"({{"open_s":{},"seconds":{},"images":{},"labels":{}}})"
             "\n",
             opened, seconds_since(start), seen, labels);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: peer_shards SHARDS IMAGES WORKERS\n");
    return 2;
  }
  try {
    measure(argv[1], std::atoll(argv[2]), std::atoi(argv[3]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "peer_shards: {}\n", error.what());
    return 2;
  }
}
