#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "optim/step_buffer.h"
#include "tensor/tensor.h"
#include "trainer/bottleneck.h"
#include "trainer/callback.h"
#include "trainer/metric_sums.h"

namespace athanor {

/// What steps have measured, on its way to who logs them. Nobody waits: each logged step's sums are copied
/// into pinned memory, in front of its StepState (StepBuffer::publish()), and when that is known, they are
/// here, too. A step that is not logged costs nothing.
class StepLogs {
 public:
  /// Of every step whose number is a multiple of `every`.
  StepLogs(std::int64_t every, Device device) : every_(every), device_(device) {}

  /// Where the run stands when a step has been queued.
  struct Place {
    std::int64_t attempted = 0;  ///< which step it is; 1 is the first
    std::int64_t epoch = 0;      ///< 1 is the first
    std::int64_t samples = 0;    ///< since training began, those of this step, too
    Times times;
  };
  /// A process begins with, or goes on from, this step: rates count from here.
  void begin(const Place& at) { last_ = at; }
  /// After the passes of a step, before the sums of one that was skipped are put back.
  void send(const MetricSums& sums, const Place& at);
  /// What is to be said of a step that has become known; null where it is none of those that are logged.
  /// Valid until the next call.
  const StepLog* arrived(const MetricSums& sums, const StepReport& report);

 private:
  struct Letter {
    Place at, before;
    Tensor sums, sums_before;  // [2 or more] f64 in host memory
  };
  void make_room(Letter& letter, const Shape& shape) const;
  // One more than there are steps that the host does not know of.
  std::array<Letter, StepBuffer::kLead + 1> letters_;
  Letter& letter(std::int64_t attempted) {
    return letters_[static_cast<std::size_t>(attempted) % letters_.size()];
  }

  std::int64_t every_;
  Device device_;
  Place last_;
  StepLog log_;
  std::vector<NamedValue> values_;
};

}  // namespace athanor
