#include "trainer/bottleneck.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace athanor {
namespace {

// Shares from which a part is worth optimising.
constexpr double kData = 0.1, kCopy = 0.2, kCommunication = 0.2, kDevice = 0.3, kQueueing = 0.6;
// Threads that read for more than this fraction of the time are saturated.
constexpr double kBusy = 0.85;
// From this fraction of the waiting time on, the verdict names the opening of files.
constexpr double kOpening = 0.5;
// Shorter steps end before a second thread is awake.
constexpr double kWorthThreads_s = 20e-3;

int percent(double share) {
  return static_cast<int>(std::lround(100 * share));
}

std::string data_line(double share, double data_s, const RunFacts& run) {
  const std::string begin = fmt::format("data: {} % of the step", percent(share));
  const LoaderStats& loader = run.loader;
  if (loader.threads == 0 && run.resident) {
    return begin + ", copied from memory by the training thread" +
           (run.device.is_cuda() ? "; try --data-on-device" : "");
  }
  if (loader.threads == 0) return begin + ", read by the training thread; try --workers auto";
  if (run.resident)
    return begin + ", passed on by loader threads although it is in memory; try --workers auto";
  const std::string workers =
      fmt::format("{}; {} worker{} busy {} %", begin, loader.workers, loader.workers == 1 ? "" : "s",
                  percent(std::min(loader.busy, 1.0)));
  if (const double opening_s = loader.waits.opening_s; opening_s >= kOpening * data_s)
    return fmt::format(
        "{}, {} % for opening files: the first reads of {} worker{} took {:.2g} s longer than later ones; "
        "more workers will not help; try athanor pack",
        begin, percent(share * opening_s / std::max(data_s, 1e-12)), loader.workers,
        loader.workers == 1 ? "" : "s", opening_s);
  if (loader.busy < kBusy) return fmt::format("{}; try --prefetch {}", workers, 2 * run.prefetch);
  if (loader.workers >= run.cores)
    return fmt::format("{}, on {} core{}; try athanor pack", workers, run.cores, run.cores == 1 ? "" : "s");
  const int more = std::min(run.cores, loader.workers + std::max(1, loader.workers / 2));
  return fmt::format("{}; try --workers {} or athanor pack", workers, more);
}

/// All parts of a step without a bottleneck, omitting those that round to zero.
std::string compute_line(const Times& times) {
  const double whole = std::max(times.step(), 1e-12);
  const struct {
    const char* name;
    double seconds;
    bool always;
  } parts[] = {{"forward", times.forward, true},
               {"backward", times.backward, true},
               {"communication", times.communication, false},
               {"optimizer", times.update, true},
               {"copies", times.copy, false},
               {"waiting for the device", times.device, false}};
  std::string line = "compute: ";
  for (const auto& part : parts) {
    const int share = percent(part.seconds / whole);
    if (share != 0 || part.always) line += fmt::format("{} {} %, ", part.name, share);
  }
  line.resize(line.size() - 2);
  return fmt::format("{}; data {} %", line, percent(times.data / whole));
}

}  // namespace

Times operator-(const Times& now, const Times& before) {
  Times part;
  for (const TimesPart& one : kTimesParts) part.*one.seconds = now.*one.seconds - before.*one.seconds;
  part.tuning = now.tuning - before.tuning;
  return part;
}

Bottleneck find_bottleneck(const Times& times, const RunFacts& run) {
  const double whole = std::max(times.step(), 1e-12);
  const auto share = [&](double part) { return part / whole; };
  if (share(times.data) >= kData) return {"data", data_line(share(times.data), times.data, run)};
  if (share(times.communication) >= kCommunication) {
    return {"communication", fmt::format("communication: {} % of the step; try a larger --batch-size",
                                         percent(share(times.communication)))};
  }
  if (run.device.is_cuda() && share(times.device) >= kDevice) {
    return {
        "device",
        fmt::format(
            "device: the host waits for the device {} % of the step, and data is ready; try --precision bf16",
            percent(share(times.device)))};
  }
  if (share(times.copy) >= kCopy) {
    return {"copy",
            fmt::format("copy: {} % of the step goes into moving and normalising images; try {}",
                        percent(share(times.copy)),
                        run.device.is_cuda() ? (run.resident ? "--data-on-device" : "fewer, larger batches")
                                             : "more --threads")};
  }
  const double queueing = times.forward + times.backward + times.update;
  if (run.device.is_cuda() && share(queueing) >= kQueueing) {
    return {"host",
            fmt::format("host: {} % of the step goes into queueing work, and the device may be idle; try a "
                        "larger --batch-size",
                        percent(share(queueing)))};
  }
  const std::string advice =
      run.device.is_cpu() && run.threads < run.cores && run.per_step_s > kWorthThreads_s
          ? fmt::format("; try --threads {}", run.cores)
          : "";
  return {"compute", compute_line(times) + advice};
}

}  // namespace athanor
