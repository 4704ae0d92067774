#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/metrics.h"
#include "optim/step_buffer.h"
#include "tensor/tensor.h"

namespace athanor {

struct NamedValue {
  std::string name;
  double value = 0;
};

/// What steps have measured over some samples; NaN where they have not.
struct Metrics {
  double loss = 0, accuracy = 0;
  std::int64_t samples = 0;
  std::vector<NamedValue> others = {};  ///< in the order in which they were first logged
  bool finite = true;                   ///< all that was measured

  static Metrics not_measured() {
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    return {.loss = kNaN, .accuracy = kNaN};
  }

  /// "loss", "accuracy" or one of the others; NaN where it was not measured.
  double value_of(std::string_view name) const;
};

/// Running totals of what steps measure, on the device: nobody waits for them within a step.
///
/// The loss and accuracy of a classifier, a sample at a time, are exact, so that they are the same however
/// samples are divided (kernels/metrics.h). What is logged under a name has a row of its own.
class MetricSums {
 public:
  /// Of a classifier: the sums of losses, of right answers and of samples. Two for each name follow.
  static constexpr std::size_t kOfClasses = 3;

  explicit MetricSums(Device device);

  /// Back to nothing; names stay.
  void clear();
  /// losses [N] f32, one a sample; logits [N, C]; target [N] i64.
  void add(const Tensor& losses, const Tensor& logits, const Tensor& target);
  /// A value of some samples: floating, of one element or of several, as add_metric() takes them. Throws
  /// ArgumentError where the name was given with another reduction or number of axes before, or is none: of
  /// letters, digits and '_', '.', '-', '/'.
  void log(std::string_view name, const Tensor& values, std::int64_t samples, MetricReduce reduce);

  /// Keeps the present sums, for a step that may come to nothing.
  void snapshot() { before_.copy_bytes_from(sums_); }
  void restore() { sums_.copy_bytes_from(before_); }
  /// The same where the step was skipped, decided on the device.
  void restore_if_skipped(StepBuffer& step);

  /// A counted wait.
  std::vector<double> read() const { return sums_.to_vector(); }
  /// Takes over sums, and the names of their rows as rows() gave them.
  void write(const std::string& rows, const std::vector<double>& sums);
  /// The names in their order, each with its reduction, a line each: "psnr mean\n".
  const std::string& rows() const { return rows_; }
  /// Takes over the names that another rank has; nothing where there are some.
  void take_names(const std::string& rows) {
    if (rows_.empty()) add_rows(rows);
  }

  /// Those of several ranks as one.
  std::vector<double> joined(std::span<const double> of_ranks) const;
  /// Of sums of one rank, or joined ones.
  Metrics mean(std::span<const double> sums) const;

 private:
  struct Row {
    std::string name;
    MetricReduce reduce;
    int axes;  // of its values; -1: not known any more
  };

  std::size_t row(std::string_view name, MetricReduce reduce, int axes);
  void add_row(Row row);
  void add_rows(const std::string& rows);
  std::size_t size() const { return kOfClasses + 2 * named_.size(); }

  Device device_;
  std::vector<Row> named_;
  std::string rows_;
  Tensor sums_, before_;
};

}  // namespace athanor
