#include "kernels/packed_weights.h"

#include <cstdint>
#include <utility>

namespace athanor::kernels {

struct PackedWeights::Copy {
  std::shared_ptr<const WeightLayout> layout;  // null: the original layout
  Tensor values;
  const Copy* next;
};

PackedWeights::PackedWeights(const Tensor& weights, const Tensor& bias, const Tensor& scale,
                             const Tensor& shift)
    : weights_(weights.detach()), scale_(scale), version_(weights.version()) {
  if (!bias.defined() && !shift.defined()) return;
  const AllocTag tag("weights");
  const std::int64_t rows = weights.shape()[0];
  bias_ = Tensor::empty({rows});
  for (std::int64_t k = 0; k < rows; ++k) {
    const double own = bias.defined() ? bias.data<float>()[k] : 0,
                 times = scale.defined() ? scale.data<float>()[k] : 1,
                 plus = shift.defined() ? shift.data<float>()[k] : 0;
    bias_.data<float>()[k] = static_cast<float>(own * times + plus);
  }
}

PackedWeights::~PackedWeights() {
  const Copy* copy = copies_.load(std::memory_order_acquire);
  while (copy) delete std::exchange(copy, copy->next);
}

const PackedWeights::Copy* PackedWeights::find(const WeightLayout* layout) const {
  const Copy* copy = copies_.load(std::memory_order_acquire);
  for (; copy; copy = copy->next) {
    if (layout && copy->layout ? copy->layout.get() == layout || copy->layout->equals(*layout)
                               : !layout && !copy->layout)
      return copy;
  }
  return nullptr;
}

Tensor PackedWeights::scaled() const {
  if (!scale_.defined()) return weights_;
  const Tensor scaled = empty_like(weights_);
  const std::int64_t rows = weights_.shape()[0], width = rows > 0 ? weights_.numel() / rows : 0;
  for (std::int64_t k = 0; k < rows; ++k) {
    const float* const from = weights_.data<float>() + k * width;
    float* const to = scaled.data<float>() + k * width;
    const float times = scale_.data<float>()[k];
    for (std::int64_t i = 0; i < width; ++i) to[i] = from[i] * times;
  }
  return scaled;
}

const PackedWeights::Copy* PackedWeights::make(const CpuContext& context,
                                               const std::shared_ptr<const WeightLayout>& layout) const {
  const std::lock_guard lock(making_);
  if (const Copy* copy = find(layout.get())) return copy;
  const AllocTag tag("weights");
  Tensor values = scaled();
  if (layout) {
    const Tensor packed = Tensor::empty({static_cast<std::int64_t>(layout->bytes())}, {DType::u8});
    layout->fill(context, values.data<float>(), packed.raw_data());
    values = packed;
  }
  const Copy* const copy = new Copy{layout, std::move(values), copies_.load(std::memory_order_relaxed)};
  copies_.store(copy, std::memory_order_release);
  return copy;
}

const std::byte* PackedWeights::in(const CpuContext& context,
                                   const std::shared_ptr<const WeightLayout>& layout) const {
  const Copy* copy = find(layout.get());
  if (!copy) copy = make(context, layout);
  return copy->values.raw_data();
}

Tensor PackedWeights::plain() const {
  const Copy* copy = find(nullptr);
  if (!copy) copy = make(cpu_context(), nullptr);
  return copy->values;
}

}  // namespace athanor::kernels
