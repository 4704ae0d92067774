#include "kernels/packed_weights.h"

#include <cstdint>

#include "kernels/copy.h"
#include "kernels/cpu/context.h"

namespace athanor::kernels {

struct PackedWeights::Copy {
  std::shared_ptr<const WeightLayout> layout;  // null: the original layout
  Tensor values;
};

namespace {

Tensor rounded(const Tensor& x, DType dtype) {
  if (dtype == x.dtype()) return x;
  const Tensor to = Tensor::empty(x.shape(), {dtype});
  copy(cpu_context(), x, to);
  return to;
}

}  // namespace

PackedWeights::PackedWeights(const Tensor& weights, const Tensor& bias, const Tensor& scale,
                             const Tensor& shift, DType dtype)
    : dtype_(dtype), weights_(weights.detach()), scale_(scale) {
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
  plain_bias_ = rounded(bias_, dtype);
}

PackedWeights::~PackedWeights() = default;

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

const Tensor& PackedWeights::copy(const CpuContext& context,
                                  const std::shared_ptr<const WeightLayout>& layout) const {
  const auto has_layout = [&](const Copy& copy) {
    return copy.layout == layout || (copy.layout && layout && copy.layout->equals(*layout));
  };
  const auto make = [&]() -> Copy {
    const AllocTag tag("weights");
    const Tensor values = scaled();
    if (!layout) return {layout, rounded(values, dtype_)};
    const Tensor packed = Tensor::empty({static_cast<std::int64_t>(layout->bytes())}, {DType::u8});
    layout->fill(context, values.data<float>(), packed.raw_data());
    return {layout, packed};
  };
  return copies_.get(has_layout, make).values;
}

const std::byte* PackedWeights::in(const CpuContext& context,
                                   const std::shared_ptr<const WeightLayout>& layout) const {
  return copy(context, layout).raw_data();
}

Tensor PackedWeights::plain() const {
  return copy(cpu_context(), nullptr);
}

}  // namespace athanor::kernels
