#include "trainer/metric_sums.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <sstream>
#include <utility>

#include "autograd/detail/dense.h"
#include "autograd/grad_mode.h"
#include "kernels/copy.h"
#include "kernels/on_device.h"
#include "optim/step.h"
#include "tensor/error.h"
#include "trainer/class_figures.h"

namespace athanor {
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
constexpr int kUnknownAxes = -1;  // of a row named by a checkpoint or another rank
constexpr std::array<const char*, 5> kReductions{"mean", "sum", "min", "max", "exact"};
constexpr std::string_view kConfusion = "confusion:", kPerClass = ":each";

const char* name_of(MetricReduce reduce) {
  return kReductions[static_cast<std::size_t>(reduce)];
}

void check_name(std::string_view name) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_.-/").find(static_cast<char>(c)) != std::string_view::npos;
  };
  ATH_CHECK(!name.empty() && std::all_of(name.begin(), name.end(), allowed),
            "log: a name must be of letters, digits and '_', '.', '-', '/', but is '{}'", name);
}

bool of_extremes(MetricReduce reduce) {
  return reduce == MetricReduce::min || reduce == MetricReduce::max;
}

/// The value of a total, given its weight or the number of its values.
double value_of(MetricReduce reduce, double total, double weight) {
  return reduce == MetricReduce::mean || reduce == MetricReduce::exact ? total / weight : total;
}

/// The number of classes in "confusion:4" or "confusion:4:each"; else 0.
std::int64_t classes_of(std::string_view text) {
  std::int64_t classes = 0;
  text.remove_prefix(kConfusion.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), classes);
  return error == std::errc() && classes <= 4096 ? classes : 0;
}

/// The first `count` elements.
Tensor first_of(const Tensor& flat, std::size_t count) {
  const auto n = static_cast<std::int64_t>(count);
  return Tensor::wrap(flat.storage(), flat.offset(), {n}, {1}, flat.dtype());
}

}  // namespace

double Metrics::value_of(std::string_view name) const {
  if (name == "loss") return loss;
  if (name == "accuracy") return accuracy;
  const auto found =
      std::find_if(others.begin(), others.end(), [&](const NamedValue& one) { return one.name == name; });
  return found == others.end() ? kNotMeasured : found->value;
}

MetricSums::MetricSums(Device device)
    : device_(device),
      sums_(Tensor::zeros({static_cast<std::int64_t>(kOfClasses)}, {DType::f64, device})),
      before_(Tensor::zeros(sums_.shape(), sums_.options())) {}

void MetricSums::clear() {
  on_device(device_, [&](auto& context) {
    for_each([&](const Tensor& sums, const Tensor&) { kernels::fill(context, sums, 0); });
  });
}

void MetricSums::snapshot() {
  for_each([](const Tensor& sums, const Tensor& before) { before.copy_bytes_from(sums); });
}

void MetricSums::restore() {
  for_each([](const Tensor& sums, const Tensor& before) { sums.copy_bytes_from(before); });
}

std::vector<double> MetricSums::read() const {
  std::vector<double> all;
  for_each([&](const Tensor& sums, const Tensor&) {
    const std::vector<double> part = sums.to_vector();
    all.insert(all.end(), part.begin(), part.end());
  });
  return all;
}

std::size_t MetricSums::size() const {
  std::size_t all = rows_size();
  for (const Table& one : tables_) all += static_cast<std::size_t>(one.classes * one.classes);
  return all;
}

void MetricSums::add(const Tensor& losses, const Tensor& logits, const Tensor& target) {
  const auto are = [](const Tensor& x, DType dtype, const Shape& shape) {
    return x.defined() && x.dtype() == dtype && x.shape() == shape;
  };
  ATH_CHECK(logits.defined() && logits.rank() == 2 && is_floating(logits.dtype()),
            "log_classes: logits must be floating [N, C], but are not");
  const Shape rows{logits.dim(0)};
  ATH_CHECK(
      are(losses, logits.dtype() == DType::f64 ? DType::f64 : DType::f32, rows) &&
          are(target, DType::i64, rows),
      "log_classes: losses must be {} and target i64, both {} like the rows of logits {} {}, but are not",
      logits.dtype() == DType::f64 ? "f64" : "f32", rows, logits.dtype(), logits.shape());
  ATH_CHECK(losses.device() == device_ && logits.device() == device_ && target.device() == device_,
            "log_classes: losses, logits and target must be on {}, but are on {}, {} and {}", device_.str(),
            losses.device().str(), logits.device().str(), target.device().str());
  const NoGrad no_grad;
  on_device(device_, [&](auto& context) {
    kernels::add_metrics(context, dense(losses.detach()), dense(logits.detach()), dense(target), sums_);
  });
}

void MetricSums::log(std::string_view name, const Tensor& values, std::int64_t samples, MetricReduce reduce) {
  ATH_CHECK(values.defined() && is_floating(values.dtype()) && values.device() == device_,
            "log: '{}' must be a floating tensor on {}, but is {}", name, device_.str(),
            values.defined() ? fmt::format("{} on {}", values.dtype(), values.device().str()) : "none");
  const std::size_t at = row(name, reduce, values.rank());
  if (samples == 0 || values.numel() == 0) return;  // a rank without samples in this batch
  const NoGrad no_grad;
  on_device(device_, [&](auto& context) {
    kernels::add_metric(context, dense(values.detach()), static_cast<double>(samples), reduce, total_of(at));
  });
}

Tensor MetricSums::total_of(std::size_t row) const {
  const auto at = static_cast<std::int64_t>(kOfClasses + 2 * row);
  return Tensor::wrap(sums_.storage(), sums_.offset() + at, {2}, {1}, DType::f64);
}

void MetricSums::add_top_k(std::string_view name, const Tensor& logits, const Tensor& target,
                           std::int64_t k) {
  ATH_CHECK(
      k >= 1 && logits.rank() == 2 && is_floating(logits.dtype()) && target.dtype() == DType::i64 &&
          target.shape() == Shape{logits.dim(0)} && logits.device() == device_ && target.device() == device_,
      "log_top_k: '{}' must have k >= 1, floating logits [N, C] and i64 target [N] on {}, but has {}, {} {} "
      "and {} {}",
      name, device_.str(), k, logits.dtype(), logits.shape(), target.dtype(), target.shape());
  const std::size_t at = row(name, MetricReduce::exact, 1);
  if (target.numel() == 0) return;
  const NoGrad no_grad;
  on_device(device_, [&](auto& context) {
    kernels::add_top_k(context, dense(logits.detach()), dense(target), k, total_of(at));
  });
}

void MetricSums::add_confusion(std::string_view name, const Tensor& predicted, const Tensor& target,
                               std::int64_t classes, bool per_class) {
  constexpr std::int64_t kMax = 4096;  // 128 MiB of counts
  ATH_CHECK(
      classes >= 1 && classes <= kMax && predicted.dtype() == DType::i64 && target.dtype() == DType::i64 &&
          predicted.shape() == target.shape() && predicted.device() == device_ && target.device() == device_,
      "log_confusion: '{}' must have 1 to {} classes, and predicted and target i64 of one shape on {}, but "
      "has {}, {} {} and {} {}",
      name, kMax, device_.str(), classes, predicted.dtype(), predicted.shape(), target.dtype(),
      target.shape());
  const Table& to = table(name, classes, per_class);
  const NoGrad no_grad;
  on_device(device_, [&](auto& context) {
    kernels::add_confusion(context, dense(predicted), dense(target), to.counts);
  });
}

MetricSums::Table& MetricSums::table(std::string_view name, std::int64_t classes, bool per_class) {
  for (Table& one : tables_) {
    if (one.name != name) continue;
    ATH_CHECK(one.classes == classes && one.per_class == per_class,
              "log_confusion: '{}' must have the same number of classes and the same figures each time, but "
              "got {}{} after {}{}",
              name, classes, per_class ? kPerClass : "", one.classes, one.per_class ? kPerClass : "");
    return one;
  }
  check_name(name);
  add_table(name, classes, per_class);
  return tables_.back();
}

void MetricSums::add_table(std::string_view name, std::int64_t classes, bool per_class) {
  rows_ += fmt::format("{} {}{}{}\n", name, kConfusion, classes, per_class ? kPerClass : "");
  const auto zeros = [&] { return Tensor::zeros({classes, classes}, {DType::f64, device_}); };
  tables_.push_back({std::string(name), classes, per_class, zeros(), zeros()});
}

std::size_t MetricSums::row(std::string_view name, MetricReduce reduce, int axes) {
  for (std::size_t i = 0; i < named_.size(); ++i) {
    Row& row = named_[i];
    if (row.name != name) continue;
    if (row.axes == kUnknownAxes) row.axes = axes;
    ATH_CHECK(row.reduce == reduce, "log: '{}' must have one reduction, but got {} after {}", name,
              name_of(reduce), name_of(row.reduce));
    ATH_CHECK(row.axes == axes, "log: '{}' must have values of one shape, but got {} axes after {}", name,
              axes, row.axes);
    return i;
  }
  check_name(name);
  add_row({std::string(name), reduce, axes});
  return named_.size() - 1;
}

void MetricSums::add_row(Row row) {
  const std::size_t before = rows_size();
  rows_ += fmt::format("{} {}\n", row.name, name_of(row.reduce));
  named_.push_back(std::move(row));
  for (Tensor* const sums : {&sums_, &before_}) {
    const Tensor grown = Tensor::zeros({static_cast<std::int64_t>(rows_size())}, sums->options());
    on_device(device_, [&](auto& context) { kernels::copy(context, *sums, first_of(grown, before)); });
    *sums = grown;
  }
}

void MetricSums::restore_if_skipped(StepBuffer& step) {
  on_device(device_, [&](auto& context) {
    const BoundStep bound(context, step);
    for_each(
        [&](const Tensor& sums, const Tensor& before) { kernels::copy_if_skipped(context, before, sums); });
  });
}

void MetricSums::add_rows(const std::string& rows) {
  std::istringstream in(rows);
  for (std::string name, reduce; in >> name >> reduce;) {
    check_name(name);
    if (reduce.starts_with(kConfusion)) {
      const std::int64_t classes = classes_of(reduce);
      ATH_CHECK(classes > 0, "metrics: '{}' must have classes, but is {}", name, reduce);
      add_table(name, classes, reduce.ends_with(kPerClass));
      continue;
    }
    const auto found = std::find(kReductions.begin(), kReductions.end(), reduce);
    ATH_CHECK(found != kReductions.end(),
              "metrics: a reduction must be mean, sum, min, max or exact, but is '{}'", reduce);
    add_row({name, static_cast<MetricReduce>(found - kReductions.begin()), kUnknownAxes});
  }
}

void MetricSums::write(const std::string& rows, const std::vector<double>& sums) {
  MetricSums read(device_);
  read.add_rows(rows);
  ATH_CHECK(sums.size() == read.size(), "metrics: {} names must have {} sums, but have {}",
            read.named_.size() + read.tables_.size(), read.size(), sums.size());
  auto from = sums.begin();
  read.for_each([&](const Tensor& to, const Tensor&) {
    const std::vector<double> part(from, from + to.numel());
    to.copy_bytes_from(Tensor::from(part, to.shape()).to(device_));
    from += to.numel();
  });
  *this = std::move(read);
}

std::vector<double> MetricSums::joined(std::span<const double> of_ranks) const {
  std::vector<double> all(size());
  for (std::size_t i = 0; i < of_ranks.size(); ++i) {
    const std::size_t at = i % size();
    const bool value = at >= kOfClasses && at < rows_size() && (at - kOfClasses) % 2 == 0;
    const bool extreme = value && of_extremes(named_[(at - kOfClasses) / 2].reduce);
    if (!extreme) {
      all[at] += of_ranks[i];
    } else if (of_ranks[i + 1] > 0) {  // else this rank has none
      const kernels::JoinMetric join{named_[(at - kOfClasses) / 2].reduce};
      all[at] = all[at + 1] > 0 ? join(all[at], of_ranks[i]) : of_ranks[i];
    }
  }
  return all;
}

Metrics MetricSums::mean(std::span<const double> sums) const {
  const double n = sums[2];
  Metrics metrics{.loss = kNotMeasured, .accuracy = kNotMeasured};
  if (n > 0) {
    metrics = {.loss = sums[0] / n, .accuracy = sums[1] / n, .samples = static_cast<std::int64_t>(n)};
    metrics.finite = std::isfinite(metrics.loss);
  }
  for (std::size_t i = 0; i < named_.size(); ++i) {
    const double total = sums[kOfClasses + 2 * i], weight = sums[kOfClasses + 2 * i + 1];
    if (weight == 0) continue;
    const double value = value_of(named_[i].reduce, total, weight);
    metrics.finite = metrics.finite && std::isfinite(value);
    if (named_[i].reduce == MetricReduce::mean)
      metrics.samples = std::max(metrics.samples, static_cast<std::int64_t>(weight));
    const std::string& name = named_[i].name;
    if (name == "loss" && n == 0) {
      metrics.loss = value;
    } else if (name == "accuracy" && n == 0) {
      metrics.accuracy = value;
    } else {
      metrics.others.push_back({name, value});
    }
  }
  std::size_t at = rows_size();
  if (sums.size() == at) return metrics;
  for (const Table& one : tables_) {
    const auto cells = static_cast<std::size_t>(one.classes * one.classes);
    add_figures(one, sums.subspan(at, cells), metrics);
    at += cells;
  }
  return metrics;
}

void MetricSums::add_figures(const Table& table, std::span<const double> counts, Metrics& to) const {
  std::vector<ClassFigures> classes(static_cast<std::size_t>(table.classes));
  ClassFigures all;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto count = static_cast<std::int64_t>(counts[i]);
    const std::size_t is = i / classes.size(), says = i % classes.size();
    classes[is].images += count;
    classes[says].predicted += count;
    if (is == says) classes[is].right += count, all.right += count;
    all.images += count;
  }
  if (all.images == 0) return;
  to.others.push_back({table.name + "_accuracy", all.recall()});
  constexpr std::pair<const char*, double (ClassFigures::*)() const> kFigures[]{
      {"precision", &ClassFigures::precision},
      {"recall", &ClassFigures::recall},
      {"f1", &ClassFigures::f1},
      {"iou", &ClassFigures::iou}};
  for (const auto& [figure, value_in] : kFigures) {
    const std::string name = fmt::format("{}_{}", table.name, figure);
    double sum = 0;
    std::int64_t present = 0;
    for (std::size_t c = 0; c < classes.size(); ++c) {
      if (classes[c].images + classes[c].predicted == 0) continue;
      const double value = (classes[c].*value_in)(), counted = std::isnan(value) ? 0 : value;
      sum += counted;
      ++present;
      if (table.per_class) to.others.push_back({fmt::format("{}/{}", name, c), counted});
    }
    to.others.push_back({name, sum / static_cast<double>(present)});
  }
}

void MetricSums::values_of_step(std::span<const double> before, std::span<const double> after,
                                std::vector<NamedValue>& values) const {
  const auto own = [](const Row& row) { return row.name == "loss" || row.name == "accuracy"; };
  const auto count =
      2 + static_cast<std::size_t>(named_.size() - std::count_if(named_.begin(), named_.end(), own));
  if (values.size() != count) {
    values = {{"train_loss"}, {"train_accuracy"}};
    for (const Row& row : named_)
      if (!own(row)) values.push_back({"train_" + row.name});
  }
  const double n = after[2] - before[2];
  values[0].value = n > 0 ? (after[0] - before[0]) / n : kNotMeasured;
  values[1].value = n > 0 ? (after[1] - before[1]) / n : kNotMeasured;
  std::size_t to = 2;
  for (std::size_t i = 0, at = kOfClasses; i < named_.size(); ++i, at += 2) {
    const Row& row = named_[i];
    const bool known = at < after.size() && after[at + 1] > before[at + 1];
    const double sum = !known ? 0 : of_extremes(row.reduce) ? after[at] : after[at] - before[at];
    const double value = known ? value_of(row.reduce, sum, after[at + 1] - before[at + 1]) : kNotMeasured;
    if (!own(row)) {
      values[to++].value = value;
    } else if (!(n > 0)) {
      values[row.name == "loss" ? 0 : 1].value = value;
    }
  }
}

}  // namespace athanor
