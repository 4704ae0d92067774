#include "trainer/metrics/top_k.h"

#include "autograd/detail/dense.h"
#include "kernels/metrics.h"
#include "kernels/on_device.h"
#include "tensor/base/error.h"

namespace athanor {

void TopKAccuracy::add(const MetricTotals& to, const Tensor& logits, const Tensor& target) const {
  const Device device = to.sums.device();
  ATH_CHECK(
      k >= 1 && logits.rank() == 2 && is_floating(logits.dtype()) && target.dtype() == DType::i64 &&
          target.shape() == Shape{logits.dim(0)} && logits.device() == device && target.device() == device,
      "log_top_k: '{}' must have k >= 1, floating logits [N, C] and i64 target [N] on {}, but has {}, {} {} "
      "and {} {}",
      to.name, device.str(), k, logits.dtype(), logits.shape(), target.dtype(), target.shape());
  if (target.numel() == 0) return;
  on_device(device, [&](auto& context) {
    kernels::add_top_k(context, dense(logits.detach()), dense(target), k, to.sums);
  });
}

std::int64_t TopKAccuracy::values(std::string_view name, std::span<const double> sums,
                                  const Emit& emit) const {
  if (sums[1] > 0) emit(name, sums[0] / sums[1]);
  return static_cast<std::int64_t>(sums[1]);
}

}  // namespace athanor
