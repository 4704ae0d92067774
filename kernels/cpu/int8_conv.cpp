#include "kernels/cpu/int8_conv.h"

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/primitive_cache.h"
#include "kernels/int8_weights.h"
#include "tensor/tensor.h"

// 8-bit convolutions and linear layers: the list of their implementations, and the kernels that choose one.

namespace athanor {
namespace cpu {

#if defined(__x86_64__) && defined(__GNUC__)
extern const Implementation kInt8Depthwise, kInt8Avx512Vnni, kInt8Avx2;
#endif
extern const Implementation kInt8OneDnn, kInt8Plain;

namespace {

/// Tiles of AMX multiply many times as fast as the vectors of our own code, in depths and widths that fill
/// them. Not measured: a rule by what the instructions do.
bool prefers_onednn(const PrimitiveKey& key) {
  const ConvSize z = conv_size(key);
  return has_amx_int8() && z.c >= 64 && z.k >= 64;
}

}  // namespace

std::span<const ListEntry> int8_conv_list() {
  static constexpr ListEntry kList[] = {
    {&kInt8OneDnn, prefers_onednn},
#if defined(__x86_64__) && defined(__GNUC__)
    {&kInt8Depthwise},
    {&kInt8Avx512Vnni},
    {&kInt8Avx2},
#endif
    {&kInt8Plain},
  };
  return kList;
}

}  // namespace cpu

namespace kernels {
namespace {

void run(CpuContext& context, const Conv2dParams& params, const Tensor& x, const Int8Weights& w,
         const Tensor& residual, cpu::Int8Operands step, const Tensor& y) {
  if (y.numel() == 0) return;
  const AllocTag tag("workspace");
  const ConvSize z(x.shape(), w.shape(), y.shape(), params);
  cpu::PrimitiveKey key = cpu::conv_key(context, cpu::PrimitiveKey::Op::conv_int8, z, x.dtype(), y.dtype());
  key.threads = cpu::threads_for(context, z.work() / 4);  // which take about as long as one of f32
  key.bias = true;
  key.fused.residual = residual.defined();
  const cpu::Code code = cpu::find_code(context, cpu::int8_conv_list(), key, name_of(ConvImpl::automatic));
  step.multiplier = w.multiplier().data<float>();
  const auto layout = code.primitive->int8_layout();
  code.primitive->run(context, {.first = x.raw_data(),
                                .second = layout ? w.in(layout) : w.weights().raw_data(),
                                .bias = w.bias().raw_data(),
                                .out = y.raw_data(),
                                .residual = residual.defined() ? residual.raw_data() : nullptr,
                                .int8 = &step});
}

}  // namespace

void conv2d_int8(CpuContext& context, const Conv2dParams& params, const Tensor& x, std::int32_t x_zero,
                 const Int8Weights& w, const Int8Residual& residual, const Rounding& rounding, Out y) {
  run(context, params, x, w, residual.tensor,
      {.x_zero = x_zero,
       .rounding = rounding,
       .residual_scale = residual.scale,
       .residual_zero = residual.zero},
      y);
}

void conv2d_int8(CpuContext& context, const Conv2dParams& params, const Tensor& x, std::int32_t x_zero,
                 const Int8Weights& w, Out y) {
  run(context, params, x, w, {}, {.x_zero = x_zero}, y);
}

}  // namespace kernels
}  // namespace athanor
