#include "trainer/metrics/confusion.h"

#include <cmath>
#include <utility>
#include <vector>

#include "autograd/detail/dense.h"
#include "kernels/metrics.h"
#include "kernels/on_device.h"
#include "tensor/base/error.h"

namespace athanor {

Confusion::Confusion(std::int64_t count, bool of_each) : classes(count), each(of_each) {
  constexpr std::int64_t kMost = 4096;  // 128 MiB of counts
  ATH_CHECK(count >= 1 && count <= kMost, "log_confusion: must have 1 to {} classes, but has {}", kMost,
            count);
}

void Confusion::add(const MetricTotals& to, const Tensor& predicted, const Tensor& target) const {
  const Device device = to.sums.device();
  ATH_CHECK(
      predicted.dtype() == DType::i64 && target.dtype() == DType::i64 &&
          predicted.shape() == target.shape() && predicted.device() == device && target.device() == device,
      "log_confusion: '{}' must have predicted and target i64 of one shape on {}, but has {} {} and {} {}",
      to.name, device.str(), predicted.dtype(), predicted.shape(), target.dtype(), target.shape());
  on_device(device, [&](auto& context) {
    kernels::add_confusion(context, dense(predicted), dense(target),
                           to.sums.view_as_strided({classes, classes}, {classes, 1}, 0));
  });
}

std::int64_t Confusion::values(std::string_view name, std::span<const double> sums, const Emit& emit) const {
  std::vector<ClassFigures> of_classes(static_cast<std::size_t>(classes));
  ClassFigures all;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto count = static_cast<std::int64_t>(sums[i]);
    const std::size_t is = i / of_classes.size(), says = i % of_classes.size();
    of_classes[is].images += count;
    of_classes[says].predicted += count;
    if (is == says) of_classes[is].right += count, all.right += count;
    all.images += count;
  }
  if (all.images == 0) return 0;
  emit(fmt::format("{}_accuracy", name), all.recall());
  constexpr std::pair<const char*, double (ClassFigures::*)() const> kFigures[]{
      {"precision", &ClassFigures::precision},
      {"recall", &ClassFigures::recall},
      {"f1", &ClassFigures::f1},
      {"iou", &ClassFigures::iou}};
  for (const auto& [figure, value_in] : kFigures) {
    double sum = 0;
    std::int64_t present = 0;
    for (std::size_t c = 0; c < of_classes.size(); ++c) {
      if (of_classes[c].images + of_classes[c].predicted == 0) continue;
      const double value = (of_classes[c].*value_in)(), counted = std::isnan(value) ? 0 : value;
      sum += counted;
      ++present;
      if (each) emit(fmt::format("{}_{}/{}", name, figure, c), counted);
    }
    emit(fmt::format("{}_{}", name, figure), sum / static_cast<double>(present));
  }
  return 0;  // pixels, perhaps
}

}  // namespace athanor
