#include "trainer/metrics/kept_predictions.h"

#include <algorithm>

#include "autograd/detail/dense.h"
#include "autograd/shape.h"
#include "kernels/metrics.h"
#include "kernels/on_device.h"
#include "tensor/base/error.h"

namespace athanor {

KeptPredictions::KeptPredictions(std::int64_t samples, std::int64_t columns)
    : samples_(samples), columns_(columns) {
  ATH_CHECK(samples >= 1 && columns >= 1,
            "metrics: there must be at least one sample and one column, but there are {} and {}", samples,
            columns);
}

void KeptPredictions::add(const MetricTotals& to, const Tensor& prediction, const Tensor& target,
                          const Tensor& samples) const {
  const Device device = to.sums.device();
  const Shape rows{samples.numel(), columns_};
  const auto are = [&](const Tensor& x) {
    return is_floating(x.dtype()) && x.shape() == rows && x.device() == device;
  };
  ATH_CHECK(are(prediction) && are(target) && samples.dtype() == DType::i64 && samples.device() == device,
            "metrics: '{}' must have predictions and targets floating {} on {}, but has {} {} and {} {}",
            to.name, rows, device.str(), prediction.dtype(), prediction.shape(), target.dtype(),
            target.shape());
  if (samples.numel() == 0) return;
  const auto wide = [](const Tensor& x) { return dense(cast(x.detach(), DType::f64)); };
  on_device(device, [&](auto& context) {
    kernels::keep_rows(context, wide(prediction), wide(target), dense(samples),
                       to.sums.view_as_strided({samples_, width()}, {width(), 1}, 0));
  });
}

// A sample that two ranks measured, since it stands in for one that cannot be read, counts once.
void KeptPredictions::join(std::span<double> sums, std::span<const double> others) const {
  const auto row = static_cast<std::size_t>(width());
  for (std::size_t at = 0; at < sums.size(); at += row) {
    if (sums[at] == 0) std::ranges::copy(others.subspan(at, row), sums.subspan(at, row).begin());
  }
}

std::int64_t KeptPredictions::values(std::string_view /*name*/, std::span<const double> sums,
                                     const Emit& emit) const {
  const auto columns = static_cast<std::size_t>(columns_), row = static_cast<std::size_t>(width());
  PredictedColumns measured{std::vector<std::vector<double>>(columns),
                            std::vector<std::vector<double>>(columns)};
  std::int64_t count = 0;
  for (; !sums.empty(); sums = sums.subspan(row)) {
    if (sums[0] == 0) continue;
    ++count;
    for (std::size_t c = 0; c < columns; ++c) {
      measured.predictions[c].push_back(sums[1 + c]);
      measured.targets[c].push_back(sums[1 + columns + c]);
    }
  }
  if (count > 0) figures(measured, emit);
  return count;
}

}  // namespace athanor
