#include "bench/peers/athanor/worker.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include "bench/support/requests.h"
#include "kernels/cpu/context.h"

namespace athanor::peers {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Samples of one run each, for so many seconds and at least five, unless these take six times as long; the
// first run of all warms up.
std::vector<double> time_of(const std::function<void()>& run, double seconds) {
  run();
  std::vector<double> samples;
  const auto start = Clock::now();
  while (seconds_since(start) < (samples.size() < 5 ? 6 * seconds : seconds)) {
    const auto begin = Clock::now();
    run();
    samples.push_back(seconds_since(begin));
  }
  return samples;
}

/// Of resident memory, since the process began.
std::int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

}  // namespace

// Each multiplication, by an odd number, spreads low bits upwards, and each shift high ones downwards.
std::uint32_t noise(std::uint32_t i) {
  i = (i ^ (i >> 16)) * 0x9e3779b1u;
  i = (i ^ (i >> 15)) * 0x85ebca77u;
  return i ^ (i >> 16);
}

Tensor made_up(const Shape& shape, std::uint32_t seed) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t word = noise(static_cast<std::uint32_t>(i) + seed);
    values[i] = static_cast<float>(word >> 8) * 0x1p-23f - 1.0f;
  }
  return Tensor::from(values, shape);
}

int serve(const std::vector<PeerCase>& cases, const std::string& version) {
  std::string names;
  for (const PeerCase& known : cases) {
    names += fmt::format(R"({}"{}":["athanor"])", names.empty() ? "" : ",", known.name);
  }
  const std::string about = fmt::format(R"({{"name":"athanor","version":"{}","threads":{},"cases":{{{}}}}})",
                                        version, cpu_context().threads(), names);
  // The last case stays ready: the driver comes back to it once a round.
  std::string current;
  Ready ready;
  return bench::answer_requests(
      about, 0.5, [&](const std::string& name, const std::string& variant, double seconds) {
        const auto found = std::find_if(cases.begin(), cases.end(),
                                        [&](const PeerCase& known) { return known.name == name; });
        if (found == cases.end() || variant != "athanor")
          return fmt::format(R"({{"error":"there is no case {} {}"}})", name, variant);
        if (current != name) {
          ready = {};
          ready = found->prepare();
          current = name;
        }
        return fmt::format(R"({{"seconds":[{}],"check":[{}],"bytes":{},"peak_bytes":{}}})",
                           fmt::join(time_of(ready.run, seconds), ","), fmt::join(ready.check, ","),
                           found->bytes, peak_bytes());
      });
}

}  // namespace athanor::peers
