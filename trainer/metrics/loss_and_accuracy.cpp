#include "trainer/metrics/loss_and_accuracy.h"

#include "autograd/detail/dense.h"
#include "kernels/metrics.h"
#include "kernels/on_device.h"
#include "tensor/base/error.h"

namespace athanor {

void LossAndAccuracy::add(const MetricTotals& to, const Tensor& losses, const Tensor& logits,
                          const Tensor& target) const {
  ATH_CHECK(logits.defined() && logits.rank() == 2 && is_floating(logits.dtype()),
            "log_classes: logits must be floating [N, C], but are not");
  const Shape rows{logits.dim(0)};
  const DType wide = logits.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const auto are = [&](const Tensor& x, DType dtype) {
    return x.defined() && x.dtype() == dtype && x.shape() == rows;
  };
  ATH_CHECK(
      are(losses, wide) && are(target, DType::i64),
      "log_classes: losses must be {} and target i64, both {} like the rows of logits {} {}, but are not",
      wide, rows, logits.dtype(), logits.shape());
  const Device device = to.sums.device();
  ATH_CHECK(losses.device() == device && logits.device() == device && target.device() == device,
            "log_classes: losses, logits and target must be on {}, but are on {}, {} and {}", device.str(),
            losses.device().str(), logits.device().str(), target.device().str());
  on_device(device, [&](auto& context) {
    kernels::add_metrics(context, dense(losses.detach()), dense(logits.detach()), dense(target), to.sums);
  });
}

std::int64_t LossAndAccuracy::values(std::string_view /*name*/, std::span<const double> sums,
                                     const Emit& emit) const {
  if (sums[2] > 0) emit("loss", sums[0] / sums[2]), emit("accuracy", sums[1] / sums[2]);
  return static_cast<std::int64_t>(sums[2]);
}

}  // namespace athanor
