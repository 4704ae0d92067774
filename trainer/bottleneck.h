#pragma once

#include <string>
#include <string_view>

#include "data/loader.h"
#include "tensor/device.h"

namespace athanor {

/// Seconds of training by activity, on the host. With a GPU, forward, backward and update measure only the
/// queueing of work; `device` is the remaining time of the GPU.
struct Times {
  double data = 0;           ///< waiting for samples, or reading them
  double copy = 0;           ///< to the device, and from bytes to numbers
  double forward = 0;        ///< the model and its loss
  double backward = 0;       ///< gradients
  double communication = 0;  ///< with other ranks
  double update = 0;         ///< optimizer, averages, and the beginning and end of a step
  double device = 0;         ///< waiting for a device that is behind
  double validation = 0, saving = 0;
  /// Finding and measuring plans of cuDNN and cuBLASLt: in this process, and in no other part.
  double tuning = 0;

  /// The parts of a step: all but validation and saving.
  double step() const { return data + copy + forward + backward + communication + update + device; }
};

/// All parts but tuning, in the order of a step.
struct TimesPart {
  const char* name;
  double Times::*seconds;
};
inline constexpr TimesPart kTimesParts[] = {{"data", &Times::data},
                                            {"copy", &Times::copy},
                                            {"forward", &Times::forward},
                                            {"backward", &Times::backward},
                                            {"communication", &Times::communication},
                                            {"update", &Times::update},
                                            {"device", &Times::device},
                                            {"validation", &Times::validation},
                                            {"saving", &Times::saving}};

/// The time spent between two readings, part by part.
Times operator-(const Times& now, const Times& before);

/// The bottleneck of a run.
struct Bottleneck {
  std::string_view bound_by;  ///< data, copy, communication, device, host or compute
  std::string line;  ///< "data: 38 % of the step; 4 workers busy 97 %; try --workers 6 or athanor pack"
};

/// The facts behind a verdict.
struct RunFacts {
  Device device = kCpu;
  bool resident = false;    ///< the data set is in memory
  LoaderStats loader = {};  ///< over the same time
  int prefetch = 4;         ///< number of batches in memory
  int threads = 1;          ///< of CPU kernels
  int cores = 1;            ///< available to this process
  double per_step_s = 0;    ///< wall time
};

/// Names the part to optimise first: data, copies, communication or the device if the share is large enough
/// to gain from, else compute. `times` cover several steps.
Bottleneck find_bottleneck(const Times& times, const RunFacts& run);

}  // namespace athanor
