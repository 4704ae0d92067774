#include "bench/support/device_time.h"

#include <algorithm>

#include "tensor/stream.h"

namespace athanor::bench {
namespace {

constexpr double kSampleSeconds = 1e-3;

class Clock {
 public:
  Clock(Device device, const std::function<void(std::int64_t)>& run) : device_(device), run_(run) {}

  std::vector<double> sample(int samples, std::int64_t batch) {
    const Stream stream = current_stream(device_);
    std::vector<Event> marks;
    for (int i = 0; i <= samples; ++i) marks.emplace_back(device_, Event::Timing::on);
    marks[0].record(stream);
    for (std::size_t i = 1; i < marks.size(); ++i) {
      for (std::int64_t k = 0; k < batch; ++k) run_(count_++);
      marks[i].record(stream);
    }
    marks.back().synchronize();
    std::vector<double> seconds;
    for (std::size_t i = 1; i < marks.size(); ++i)
      seconds.push_back(marks[i - 1].ms_until(marks[i]) * 1e-3 / static_cast<double>(batch));
    return seconds;
  }

 private:
  Device device_;
  const std::function<void(std::int64_t)>& run_;
  std::int64_t count_ = 0;
};

}  // namespace

std::vector<double> device_seconds(Device device, const std::function<void(std::int64_t)>& run) {
  Clock clock(device, run);
  clock.sample(1, 3);  // modules load, plans are made, the clock of the device rises
  const double once = std::max(clock.sample(1, 5)[0], 1e-7);
  const auto batch = static_cast<std::int64_t>(std::clamp(kSampleSeconds / once, 1.0, 500.0));
  return clock.sample(once > 20e-3 ? 10 : 30, batch);
}

}  // namespace athanor::bench
