#include "trainer/loggers/step_log.h"

#include <algorithm>

#include "tensor/pinned.h"

namespace athanor {
namespace {

std::span<double> values_of(const Tensor& sums) {
  return {sums.data<double>(), static_cast<std::size_t>(sums.numel())};
}

}  // namespace

void StepLogs::make_room(PendingCopy& copy, const Shape& shape) const {
  for (Tensor* const part : {&copy.sums, &copy.sums_before})
    *part = device_.is_cpu() ? Tensor::zeros(shape, {DType::f64, kCpu}) : empty_pinned(shape, DType::f64);
}

void StepLogs::send(const MetricSums& sums, const Place& at) {
  const Shape& shape = sums.totals().shape();
  if (!copies_[0].sums.defined()) {  // the first step has all names: later ones allocate nothing
    for (PendingCopy& one : copies_) make_room(one, shape);
    const std::vector<double> none(static_cast<std::size_t>(shape.numel()), 0);
    std::vector<double> some(none.size(), 1);
    sums.values_of_step(none, some, values_);  // for their names
    log_.values = values_;
  }
  if (at.attempted % every_ != 0) return;
  PendingCopy& to = copy(at.attempted);
  to.at = at;
  to.before = last_;
  last_ = at;
  if (to.sums.shape() != shape) make_room(to, shape);
  to.sums.copy_bytes_from(sums.totals());
  to.sums_before.copy_bytes_from(sums.totals_before());
}

const StepLog* StepLogs::arrived(const MetricSums& sums, const StepReport& report) {
  if (report.attempted % every_ != 0) return nullptr;
  const PendingCopy& from = copy(report.attempted);
  if (from.at.attempted != report.attempted) return nullptr;
  sums.values_of_step(values_of(from.sums_before), values_of(from.sums), values_);
  const auto steps = static_cast<double>(from.at.attempted - from.before.attempted);
  const Times times = from.at.times - from.before.times;
  log_.report = report;
  log_.epoch = from.at.epoch;
  log_.images_per_s =
      static_cast<double>(from.at.samples - from.before.samples) / std::max(times.step(), 1e-9);
  log_.data_wait_s = times.data / std::max(steps, 1.0);
  log_.values = values_;
  return &log_;
}

}  // namespace athanor
