#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "optim/step_buffer.h"
#include "tensor/tensor.h"

namespace athanor {

/// Loss and accuracy over some samples; NaN where there were none.
struct Metrics {
  double loss = 0, accuracy = 0;
  std::int64_t samples = 0;
};

/// Sums of losses, of right answers and of samples, on the device: nobody waits for them within a step.
/// Exact, so that they are the same however samples are divided (kernels/metrics.h).
class MetricSums {
 public:
  static constexpr std::size_t kSize = 3;

  explicit MetricSums(Device device);

  void clear();
  /// losses [N] f32, one a sample; logits [N, C]; target [N] i64.
  void add(const Tensor& losses, const Tensor& logits, const Tensor& target);

  /// Keeps the present sums, for a step that may come to nothing.
  void snapshot() { before_.copy_bytes_from(sums_); }
  void restore() { sums_.copy_bytes_from(before_); }
  /// The same where the step was skipped, decided on the device.
  void restore_if_skipped(StepBuffer& step);

  /// A counted wait.
  std::vector<double> read() const { return sums_.to_vector(); }
  void write(const std::vector<double>& sums);

  /// Of sums that were read, perhaps of several ranks together.
  static Metrics mean(std::span<const double> sums);

 private:
  Tensor sums_, before_;
};

}  // namespace athanor
