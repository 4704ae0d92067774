// Times an epoch by the number of workers. Reading a sample takes 1 ms, as from a disk; a training step 20
// ms. Both only sleep, so that one core is enough. Run it where digits.csv is.
#include <chrono>
#include <cstdio>
#include <thread>

#include "loader.h"

using namespace engine;
using namespace std::chrono_literals;

namespace {

struct Disk final : public Source {
  explicit Disk(const Source& s) : source(s) {}
  std::int64_t size() const override { return 512; }
  Shape image_shape() const override { return source.image_shape(); }
  int read(std::int64_t sample, float* image) const override {
    std::this_thread::sleep_for(1ms);
    return source.read(sample, image);
  }
  const Source& source;
};

}  // namespace

int main() {
  const InMemory digits(read_digits("digits.csv", true));
  const Disk disk(digits);
  std::printf("workers   first epoch   second epoch   of it waiting   sum of labels\n");
  for (const int workers : {0, 1, 2, 4, 8}) {
    Loader loader(disk, {.workers = workers, .most_shift = 1});
    double seconds[2] = {}, waiting = 0;
    long sum = 0;
    for (int epoch = 0; epoch < 2; ++epoch) {
      const auto begin = std::chrono::steady_clock::now();
      waiting = 0;
      loader.start(epoch);
      while (true) {
        const auto asked = std::chrono::steady_clock::now();
        const Dataset* batch = loader.next();
        waiting += std::chrono::duration<double>(std::chrono::steady_clock::now() - asked).count();
        if (!batch) break;
        for (std::size_t i = 0; i < batch->labels.size(); ++i)
          sum += static_cast<long>(i + 1) * batch->labels[i];
        std::this_thread::sleep_for(20ms);
      }
      seconds[epoch] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    std::printf("%7d   %8.0f ms   %9.0f ms   %10.0f ms   %13ld\n", workers, 1000 * seconds[0],
                1000 * seconds[1], 1000 * waiting, sum);
  }
}
