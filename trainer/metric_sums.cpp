#include "trainer/metric_sums.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <sstream>
#include <utility>

#include "autograd/detail/dense.h"
#include "autograd/grad_mode.h"
#include "kernels/copy.h"
#include "optim/step.h"
#include "tensor/error.h"

namespace athanor {
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
constexpr int kUnknownAxes = -1;  // of a row that a checkpoint or another rank has named
constexpr std::array<const char*, 4> kReductions{"mean", "sum", "min", "max"};

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
  on_device(device_, [&](auto& context) { kernels::fill(context, sums_, 0); });
}

void MetricSums::add(const Tensor& losses, const Tensor& logits, const Tensor& target) {
  const NoGrad no_grad;
  on_device(device_, [&](auto& context) { kernels::add_metrics(context, losses, logits, target, sums_); });
}

void MetricSums::log(std::string_view name, const Tensor& values, std::int64_t samples, MetricReduce reduce) {
  ATH_CHECK(values.defined() && is_floating(values.dtype()) && values.device() == device_,
            "log: '{}' must be a floating tensor on {}, but is {}", name, device_.str(),
            values.defined() ? fmt::format("{} on {}", values.dtype(), values.device().str()) : "none");
  const std::size_t at = kOfClasses + 2 * row(name, reduce, values.rank());
  if (samples == 0 || values.numel() == 0) return;  // a rank that has no part of this batch
  const NoGrad no_grad;
  const Tensor total =
      Tensor::wrap(sums_.storage(), sums_.offset() + static_cast<std::int64_t>(at), {2}, {1}, DType::f64);
  on_device(device_, [&](auto& context) {
    kernels::add_metric(context, dense(values.detach()), static_cast<double>(samples), reduce, total);
  });
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
  const std::size_t before = size();
  rows_ += fmt::format("{} {}\n", row.name, name_of(row.reduce));
  named_.push_back(std::move(row));
  for (Tensor* const sums : {&sums_, &before_}) {
    const Tensor grown = Tensor::zeros({static_cast<std::int64_t>(size())}, sums->options());
    on_device(device_, [&](auto& context) { kernels::copy(context, *sums, first_of(grown, before)); });
    *sums = grown;
  }
}

void MetricSums::restore_if_skipped(StepBuffer& step) {
  on_device(device_, [&](auto& context) {
    const BoundStep bound(context, step);
    kernels::copy_if_skipped(context, before_, sums_);
  });
}

void MetricSums::add_rows(const std::string& rows) {
  std::istringstream in(rows);
  for (std::string name, reduce; in >> name >> reduce;) {
    const auto found = std::find(kReductions.begin(), kReductions.end(), reduce);
    ATH_CHECK(found != kReductions.end(), "metrics: a reduction must be mean, sum, min or max, but is '{}'",
              reduce);
    check_name(name);
    add_row({name, static_cast<MetricReduce>(found - kReductions.begin()), kUnknownAxes});
  }
}

void MetricSums::write(const std::string& rows, const std::vector<double>& sums) {
  MetricSums read(device_);
  read.add_rows(rows);
  ATH_CHECK(sums.size() == read.size(), "metrics: {} names must have {} sums, but have {}",
            read.named_.size(), read.size(), sums.size());
  read.sums_.copy_bytes_from(Tensor::from(sums, read.sums_.shape()).to(device_));
  *this = std::move(read);
}

std::vector<double> MetricSums::joined(std::span<const double> of_ranks) const {
  std::vector<double> all(size());
  for (std::size_t i = 0; i < of_ranks.size(); ++i) {
    const std::size_t at = i % size();
    const bool value = at >= kOfClasses && (at - kOfClasses) % 2 == 0;
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
    const bool averages = named_[i].reduce == MetricReduce::mean;
    const double value = averages ? total / weight : total;
    metrics.finite = metrics.finite && std::isfinite(value);
    if (averages) metrics.samples = std::max(metrics.samples, static_cast<std::int64_t>(weight));
    const std::string& name = named_[i].name;
    if (name == "loss" && n == 0) {
      metrics.loss = value;
    } else if (name == "accuracy" && n == 0) {
      metrics.accuracy = value;
    } else {
      metrics.others.push_back({name, value});
    }
  }
  return metrics;
}

}  // namespace athanor
