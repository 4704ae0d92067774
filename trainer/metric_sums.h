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
  /// The share of samples whose target is among the k largest logits [N, C]; target [N] i64.
  void add_top_k(std::string_view name, const Tensor& logits, const Tensor& target, std::int64_t k);
  /// Pairs for a confusion matrix: predicted and target, i64 of one shape. A pair of which one is not in
  /// [0, classes) is left out. The figures are NAME_accuracy, and of classes that either has, NAME_precision,
  /// NAME_recall, NAME_f1 and NAME_iou: each class's (`of_each`), as NAME_iou/3, and their mean. A precision
  /// of a class that was never predicted, and a recall of one that never was there, are 0.
  void add_confusion(std::string_view name, const Tensor& predicted, const Tensor& target,
                     std::int64_t classes, bool of_each);

  /// Keeps the present sums, for a step that may come to nothing.
  void snapshot();
  void restore();
  /// The same where the step was skipped, decided on the device.
  void restore_if_skipped(StepBuffer& step);

  /// All of them: a counted wait for each of tables and of the rest.
  std::vector<double> read() const;
  /// Those without tables, which may be large.
  std::vector<double> read_rows() const { return sums_.to_vector(); }
  /// Of the rest, without tables, as they are, and as they were in snapshot(): on the device.
  const Tensor& totals() const { return sums_; }
  const Tensor& totals_before() const { return before_; }
  /// What a step has measured, of totals before and after it: "train_loss", "train_accuracy", and the names
  /// that it logs, "train_NAME". NaN where it has not. Names that `values` has already are left as they are.
  void values_of_step(std::span<const double> before, std::span<const double> after,
                      std::vector<NamedValue>& values) const;
  /// Takes over sums, and the names of their rows as rows() gave them.
  void write(const std::string& rows, const std::vector<double>& sums);
  /// The names in their order, each with its reduction, a line each: "psnr mean\n", "shapes confusion:4\n".
  const std::string& rows() const { return rows_; }
  /// Takes over the names that another rank has; nothing where there are some.
  void take_names(const std::string& rows) {
    if (rows_.empty()) add_rows(rows);
  }

  /// Those of several ranks as one.
  std::vector<double> joined(std::span<const double> of_ranks) const;
  /// Of sums of one rank, or joined ones. Of read_rows(), no figures of tables.
  Metrics mean(std::span<const double> sums) const;

 private:
  struct Row {
    std::string name;
    MetricReduce reduce;
    int axes;  // of its values; -1: not known any more
  };
  /// A confusion matrix [classes, classes].
  struct Table {
    std::string name;
    std::int64_t classes;
    bool of_each;
    Tensor counts, before;
  };

  std::size_t row(std::string_view name, MetricReduce reduce, int axes);
  Tensor total_of(std::size_t row) const;
  void add_row(Row row);
  Table& table(std::string_view name, std::int64_t classes, bool of_each);
  void add_table(std::string_view name, std::int64_t classes, bool of_each);
  void add_rows(const std::string& rows);
  void add_figures(const Table& table, std::span<const double> counts, Metrics& to) const;
  std::size_t rows_size() const { return kOfClasses + 2 * named_.size(); }
  std::size_t size() const;
  /// Calls f(sums, as they were before) for all there are.
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
