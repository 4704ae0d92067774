#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/grad_mode.h"
#include "optim/step_buffer.h"
#include "tensor/state_dict.h"
#include "tensor/tensor.h"
#include "trainer/metrics/logged.h"
#include "trainer/metrics/metric.h"
#include "trainer/metrics/value_of_sums.h"

namespace athanor {

/// A metric of an epoch.
struct NamedValue {
  std::string name;
  double value = 0;
};

/// Whether it is the figure of one class, as Confusion names them: "val_cells_iou/3".
inline bool is_of_class(std::string_view metric) {
  const std::size_t slash = metric.rfind('/');
  return slash != metric.npos && slash + 1 < metric.size() &&
         metric.find_first_not_of("0123456789", slash + 1) == metric.npos;
}

/// Whether it is the threshold of one class, as SeveralLabels names them: "val_threshold/3". Only the end of
/// a run shows it, with the name of the class; a model file and metrics.jsonl have it.
inline bool is_threshold(std::string_view metric) {
  if (!is_of_class(metric)) return false;
  const std::string_view name = metric.substr(0, metric.rfind('/'));
  return name == "threshold" || name == "val_threshold" || name == "test_threshold";
}

/// Measurements over some samples; NaN means not measured.
struct Metrics {
  double loss = 0, accuracy = 0;
  std::int64_t samples = 0;
  std::vector<NamedValue> others = {};  ///< in the order of their first log
  bool finite = true;                   ///< all values are finite

  static Metrics not_measured() {
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    return {.loss = kNaN, .accuracy = kNaN};
  }

  void add(std::string_view name, double value);
  /// The value of "loss", "accuracy" or another name; NaN if not measured.
  double value_of(std::string_view name) const;
};

/// The metrics of training or validation, by name, and their sums on the device: steps do not wait for them.
/// Those that are logged with each step share one tensor; every other metric has one of its own.
class MetricSums {
 public:
  explicit MetricSums(Device device, std::vector<ValueOfSums> values = {});

  /// Resets all sums; keeps the names.
  void clear();
  /// Has the metric of this name, added if there is none, add `what` (trainer/metrics/). Throws ArgumentError
  /// if the name was another metric's before, or has characters other than letters, digits and '_', '.', '-',
  /// '/'.
  template <class M, class... What> void add(std::string_view name, const M& metric, const What&... what) {
    const Entry* one = find(name, metric);
    if (!one) one = &insert(name, std::make_unique<M>(metric));
    const NoGrad no_grad;
    metric.add({name, one->sums}, what...);
  }
  void log(std::string_view name, const Tensor& values, std::int64_t samples, MetricReduce reduce) {
    add(name, Logged(reduce), values, samples);
  }

  /// Saves the current sums, for a step that may be dropped.
  void snapshot();
  void restore();
  /// Restores them if the step was skipped; the device decides.
  void restore_if_skipped(StepBuffer& step);

  /// All sums, in the order of rows(): a counted wait for the shared ones and one for each tensor besides.
  std::vector<double> read() const;
  /// The shared sums alone, which come first.
  std::vector<double> read_rows() const;
  /// The shared tensor, now and at snapshot(): on the device. It may be longer than its sums.
  const Tensor& totals() const { return totals_; }
  const Tensor& totals_before() const { return before_; }
  /// The measurements of a step, from totals before and after it: "train_loss", "train_accuracy", and others
  /// as "train_NAME". NaN means not measured. Overwrites `after`. Names already in `values` are unchanged.
  void values_of_step(std::span<const double> before, std::span<double> after,
                      std::vector<NamedValue>& values) const;

  /// Each name with its kind: "psnr mean, shapes confusion:4".
  std::string rows() const;
  /// Adopts the names of another rank, unless there are some already.
  void take_names(const std::string& rows);
  /// Restores sums, with the names of their rows from rows().
  void write(const std::string& rows, const std::vector<double>& sums);
  /// For checkpoints: the sums of all ranks, and their names.
  StateDict state_dict(const std::vector<double>& of_ranks, int ranks) const;
  /// This rank's own sums; with another number of ranks than saved, rank 0 has all and the others none.
  void load_state_dict(const StateDict& state, int rank, int ranks);

  /// Joins the sums of several ranks.
  std::vector<double> joined(std::span<const double> of_ranks) const;
  /// Metrics from the sums of one rank, or joined ones. From read_rows(), without the larger metrics.
  Metrics mean(std::span<const double> sums) const;

 private:
  struct Entry {
    std::string name;
    std::unique_ptr<Metric> metric;
    Tensor sums, before;  // `before` only if it has tensors of its own

    std::size_t size() const { return static_cast<std::size_t>(metric->size()); }
  };

  const Entry* find(std::string_view name, const Metric& metric) const;
  const Entry& insert(std::string_view name, std::unique_ptr<Metric> metric);
  void make_room(std::int64_t sums);
  std::size_t size(bool in_steps = false) const;
  std::int64_t values(std::span<const double> sums, const Metric::Emit& emit) const;
  /// Calls f(entry, index of its first sum), the shared ones first.
  template <class F> void for_each_entry(const F& f) const {
    std::size_t at = 0;
    for (const Entry& one : entries_) f(one, std::exchange(at, at + one.size()));
  }
  /// Calls f(sums, sums at the snapshot) for each tensor.
  template <class F> void for_each_tensor(const F& f) const {
    f(totals_, before_);
    for (const Entry& one : entries_)
      if (!one.metric->in_steps()) f(one.sums, one.before);
  }

  Device device_;
  std::vector<ValueOfSums> values_;
  std::vector<Entry> entries_;  // the shared ones first
  Tensor totals_, before_;
};

}  // namespace athanor
