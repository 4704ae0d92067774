#include "kernels/int8_weights.h"

namespace athanor::kernels {

Int8Weights::Int8Weights(const Tensor& weights, const Tensor& multiplier, const Tensor& bias)
    : weights_(weights), multiplier_(multiplier), bias_(bias) {
  const Shape rows = weights.rank() == 4 ? Shape{weights.dim(0)} : Shape{};
  ATH_CHECK(
      weights.rank() == 4 && weights.dtype() == DType::i8 && multiplier.dtype() == DType::f32 &&
          bias.dtype() == DType::i32 && multiplier.shape() == rows && bias.shape() == rows &&
          weights.is_contiguous() && multiplier.is_contiguous() && bias.is_contiguous() &&
          weights.device() == multiplier.device() && weights.device() == bias.device(),
      "int8: weights must be i8 [K, R, S, C] with an f32 and an i32 for each of K channels, but are {} {}, "
      "{} {} and {} {}",
      weights.dtype(), weights.shape(), multiplier.dtype(), multiplier.shape(), bias.dtype(), bias.shape());
}

const std::byte* Int8Weights::in(const std::shared_ptr<const Int8Layout>& layout) const {
  const auto has_layout = [&](const Copy& copy) {
    return copy.layout == layout || copy.layout->equals(*layout);
  };
  const auto make = [&]() -> Copy {
    const AllocTag tag("weights");
    const Tensor values = Tensor::empty({static_cast<std::int64_t>(layout->bytes())}, {DType::u8});
    layout->fill(weights_.data<std::int8_t>(), values.raw_data());
    return {layout, values};
  };
  return copies_.get(has_layout, make).values.raw_data();
}

}  // namespace athanor::kernels
