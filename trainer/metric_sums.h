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

/// A metric of an epoch.
struct NamedValue {
  std::string name;
  double value = 0;
};

/// Whether it is the figure of one class, as MetricSums::add_confusion() names them: "val_cells_iou/3".
inline bool is_of_class(std::string_view metric) {
  const std::size_t slash = metric.rfind('/');
  return slash != metric.npos && slash + 1 < metric.size() &&
         metric.find_first_not_of("0123456789", slash + 1) == metric.npos;
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

  /// The value of "loss", "accuracy" or another name; NaN if not measured.
  double value_of(std::string_view name) const;
};

/// Running totals of measurements, on the device: steps do not wait for them.
///
/// The loss and accuracy of a classifier are exact, so they do not depend on how samples are divided
/// (kernels/metrics.h). Every logged name has its own row.
class MetricSums {
 public:
  /// For a classifier: sums of losses, right answers and samples. Two values per name follow.
  static constexpr std::size_t kOfClasses = 3;

  explicit MetricSums(Device device);

  /// Resets all sums; keeps the names.
  void clear();
  /// losses [N] f32, one per sample; logits [N, C]; target [N] i64.
  void add(const Tensor& losses, const Tensor& logits, const Tensor& target);
  /// Logs a value over some samples: floating, with one or more elements, as add_metric() takes them. Throws
  /// ArgumentError if the name had another reduction or number of axes before, or has characters other than
  /// letters, digits and '_', '.', '-', '/'.
  void log(std::string_view name, const Tensor& values, std::int64_t samples, MetricReduce reduce);
  /// Logs the share of samples whose target is among the k largest logits [N, C]; target [N] i64.
  void add_top_k(std::string_view name, const Tensor& logits, const Tensor& target, std::int64_t k);
  /// Adds pairs to a confusion matrix: predicted and target, i64 of one shape. Pairs outside [0, classes) are
  /// ignored. Results are NAME_accuracy and, over classes that occur in either, the means NAME_precision,
  /// NAME_recall, NAME_f1 and NAME_iou; with `per_class` also per class, as NAME_iou/3. Precision without
  /// predictions, and recall without targets, is 0.
  void add_confusion(std::string_view name, const Tensor& predicted, const Tensor& target,
                     std::int64_t classes, bool per_class);

  /// Saves the current sums, for a step that may be dropped.
  void snapshot();
  void restore();
  /// Restores them if the step was skipped; the device decides.
  void restore_if_skipped(StepBuffer& step);

  /// All sums: a counted wait for each table and one for the rest.
  std::vector<double> read() const;
  /// The sums without tables, which may be large.
  std::vector<double> read_rows() const { return sums_.to_vector(); }
  /// The sums without tables, now and at snapshot(): on the device.
  const Tensor& totals() const { return sums_; }
  const Tensor& totals_before() const { return before_; }
  /// The measurements of a step, from totals before and after it: "train_loss", "train_accuracy", and logged
  /// names as "train_NAME". NaN means not measured. Names already in `values` are unchanged.
  void values_of_step(std::span<const double> before, std::span<const double> after,
                      std::vector<NamedValue>& values) const;
  /// Restores sums, with the names of their rows from rows().
  void write(const std::string& rows, const std::vector<double>& sums);
  /// The names in order, each on a line with its reduction: "psnr mean\n", "shapes confusion:4\n".
  const std::string& rows() const { return rows_; }
  /// Adopts the names of another rank, unless there are some already.
  void take_names(const std::string& rows) {
    if (rows_.empty()) add_rows(rows);
  }

  /// Joins the sums of several ranks.
  std::vector<double> joined(std::span<const double> of_ranks) const;
  /// Metrics from the sums of one rank, or joined ones. From read_rows(), without tables.
  Metrics mean(std::span<const double> sums) const;

 private:
  struct Row {
    std::string name;
    MetricReduce reduce;
    int axes;  // of its values; -1: unknown
  };
  /// A confusion matrix [classes, classes].
  struct Table {
    std::string name;
    std::int64_t classes;
    bool per_class;
    Tensor counts, before;
  };

  std::size_t row(std::string_view name, MetricReduce reduce, int axes);
  Tensor total_of(std::size_t row) const;
  void add_row(Row row);
  Table& table(std::string_view name, std::int64_t classes, bool per_class);
  void add_table(std::string_view name, std::int64_t classes, bool per_class);
  void add_rows(const std::string& rows);
  void add_figures(const Table& table, std::span<const double> counts, Metrics& to) const;
  std::size_t rows_size() const { return kOfClasses + 2 * named_.size(); }
  std::size_t size() const;
  /// Calls f(sums, sums at the snapshot) for each tensor.
  template <class F> void for_each(const F& f) const {
    f(sums_, before_);
    for (const Table& one : tables_) f(one.counts, one.before);
  }

  Device device_;
  std::vector<Row> named_;
  std::vector<Table> tables_;
  std::string rows_;
  Tensor sums_, before_;
};

}  // namespace athanor
