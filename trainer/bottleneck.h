#pragma once

#include <string>
#include <string_view>

#include "data/loader.h"
#include "tensor/device.h"

namespace athanor {

/// Where the host's seconds of training went. With a GPU, forward, backward and update are the time it takes
/// to queue their work; what the GPU takes longer is `device`.
struct Times {
  double data = 0;           ///< waiting for samples, or reading them
  double copy = 0;           ///< to the device, and from bytes to numbers
  double forward = 0;        ///< model and loss
  double backward = 0;       ///< gradients
  double communication = 0;  ///< with other ranks
  double update = 0;         ///< optimizer, averages, and what a step begins and ends with
  double device = 0;         ///< waiting for a device that is behind
  double validation = 0, saving = 0;

  /// Of the step's own parts: all but validation and saving.
  double step() const { return data + copy + forward + backward + communication + update + device; }
};

/// All of them, in the order of a step.
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

/// The times of a part: what `now` has that `before` did not.
Times operator-(const Times& now, const Times& before);

/// What holds a run up.
struct Bottleneck {
  std::string_view bound_by;  ///< data, copy, communication, device, host or compute
  std::string line;  ///< "data: 38 % of the step; 4 workers busy 97 %; try --workers 6 or athanor pack"
};

/// What a verdict is made from.
struct RunFacts {
  Device device = kCpu;
  bool resident = false;    ///< the data set is in memory
  LoaderStats loader = {};  ///< of the same time
  int prefetch = 4;         ///< batches there is memory for
  int threads = 1;          ///< of the CPU's kernels
  int cores = 1;            ///< this process may use
  double per_step_s = 0;    ///< of wall time
};

/// Names the part to look at first: data, copies, communication and the device where they take a share that
/// can be won back, else what computes. `times` are those of some steps.
Bottleneck find_bottleneck(const Times& times, const RunFacts& run);

}  // namespace athanor
