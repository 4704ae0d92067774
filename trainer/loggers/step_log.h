#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "optim/step_buffer.h"
#include "tensor/tensor.h"
#include "trainer/bottleneck.h"
#include "trainer/callback.h"
#include "trainer/metric_sums.h"

namespace athanor {

/// The measurements of steps on their way to loggers, without waits. Each logged step's sums are copied to
/// pinned memory before its StepState (StepBuffer::publish()), so once the state is known, they have arrived.
/// A step that is not logged costs nothing.
class StepLogs {
 public:
  /// Logs every step whose number is a multiple of `every`.
  StepLogs(std::int64_t every, Device device) : every_(every), device_(device) {}

  /// The position of the run when a step has been queued.
  struct Place {
    std::int64_t attempted = 0;  ///< index of the step; 1 is the first
    std::int64_t epoch = 0;      ///< 1 is the first
    std::int64_t samples = 0;    ///< since training began, including this step
    Times times;
  };
  /// A process starts or resumes at this step: rates count from here.
  void begin(const Place& at) { last_ = at; }
  /// After the passes of a step, before the sums of a skipped step are restored.
  void send(const MetricSums& sums, const Place& at);
  /// The log of a step that has become known; null if it is not logged. Valid until the next call.
  const StepLog* arrived(const MetricSums& sums, const StepReport& report);

 private:
  struct PendingCopy {
    Place at, before;
    Tensor sums, sums_before;  // [2 or more] f64 in host memory
  };
  void make_room(PendingCopy& copy, const Shape& shape) const;
  // One more than the maximum number of steps unknown to the host.
  std::array<PendingCopy, StepBuffer::kLead + 1> copies_;
  PendingCopy& copy(std::int64_t attempted) {
    return copies_[static_cast<std::size_t>(attempted) % copies_.size()];
  }

  std::int64_t every_;
  Device device_;
  Place last_;
  StepLog log_;
  std::vector<NamedValue> values_;
};

}  // namespace athanor
