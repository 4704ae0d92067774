#include "bench/support/onednn_int8.h"

#include <cstring>
#include <memory>

#ifdef ATHANOR_BENCH_ONEDNN

#include "kernels/cpu/onednn_api.h"

namespace athanor::bench {
namespace {

using dnnl::memory;

memory::desc image(const Tensor& x) {
  const memory::dim n = x.dim(0), h = x.dim(1), w = x.dim(2), c = x.dim(3);
  return {{n, c, h, w}, memory::data_type::u8, memory::dims{h * w * c, 1, w * c, c}};
}

/// What a run needs, made once: primitive, reordered weights, and the memory of both images.
struct Ready {
  Int8Conv conv;
  dnnl::stream stream{cpu::engine()};
  dnnl::convolution_forward primitive;
  std::unordered_map<int, memory> arguments;
  std::vector<float> numbers;
};

}  // namespace

bool has_onednn_int8() {
  return true;
}

std::function<void()> onednn_int8(const Int8Conv& conv) {
  const auto ready = std::make_shared<Ready>();
  ready->conv = conv;
  const std::int64_t k = conv.w.dim(0), r = conv.w.dim(1), s = conv.w.dim(2), c = conv.w.dim(3);
  const memory::desc x = image(conv.x), y = image(conv.y);
  const std::int64_t groups = conv.params.groups;
  memory::dims sizes{k / groups, c, r, s}, strides{r * s * c, 1, s * c, c};
  if (groups > 1) {
    sizes.insert(sizes.begin(), groups);
    strides.insert(strides.begin(), k / groups * r * s * c);
  }
  const memory::desc plain(sizes, memory::data_type::s8, strides);
  const memory::desc any(sizes, memory::data_type::s8, memory::format_tag::any);
  // oneDNN subtracts the zero of x itself, so its bias is without; and its ReLU comes before the zero of y.
  const bool s32 = DNNL_VERSION_MAJOR < 3;
  const memory::desc bias({k}, s32 ? memory::data_type::s32 : memory::data_type::f32, memory::format_tag::a);
  dnnl::primitive_attr attr;
  dnnl::post_ops ops;
#if DNNL_VERSION_MAJOR >= 3
  attr.set_scales_mask(DNNL_ARG_WEIGHTS, groups > 1 ? 3 : 1);
  attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
  attr.set_zero_points_mask(DNNL_ARG_DST, 0);
  ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
#else
  ready->numbers.assign(conv.multiplier.data<float>(), conv.multiplier.data<float>() + k);
  attr.set_output_scales(1 << 1, ready->numbers);
  attr.set_zero_points(DNNL_ARG_SRC, 0, {conv.zero});
  attr.set_zero_points(DNNL_ARG_DST, 0, {conv.zero});
  ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
#endif
  attr.set_post_ops(ops);
  const cpu::ConvArguments arguments{{conv.params.stride[0], conv.params.stride[1]},
                                     {0, 0},
                                     {conv.params.padding[0], conv.params.padding[1]}};
  const auto desc = cpu::forward_desc(arguments, dnnl::prop_kind::forward_inference, x, any, bias, y, attr);
  memory from(plain, cpu::engine(), conv.w.raw_data()), weights(desc.weights_desc(), cpu::engine());
  dnnl::reorder(from, weights).execute(ready->stream, from, weights);
  memory offsets(bias, cpu::engine());
  for (std::int64_t channel = 0; channel < k; ++channel) {
    std::int32_t offset = conv.bias.data<std::int32_t>()[channel];
    for (std::int64_t i = 0; i < r * s * c; ++i)
      offset += conv.zero * conv.w.data<std::int8_t>()[channel * r * s * c + i];
    const float scaled = static_cast<float>(offset) * conv.multiplier.data<float>()[channel];
    void* const to = static_cast<std::byte*>(offsets.get_data_handle()) + channel * 4;
    std::memcpy(to, s32 ? static_cast<const void*>(&offset) : &scaled, 4);
  }
  ready->primitive = dnnl::convolution_forward(desc);
  ready->arguments = {{DNNL_ARG_SRC, memory(x, cpu::engine(), conv.x.raw_data())},
                      {DNNL_ARG_WEIGHTS, weights},
                      {DNNL_ARG_BIAS, offsets},
                      {DNNL_ARG_DST, memory(y, cpu::engine(), conv.y.raw_data())}};
#if DNNL_VERSION_MAJOR >= 3
  const auto number = [&](memory::data_type type, const void* value, std::int64_t count) {
    memory numbers({{count}, type, memory::format_tag::a}, cpu::engine());
    std::memcpy(numbers.get_data_handle(), value, static_cast<std::size_t>(count) * 4);
    return numbers;
  };
  const memory zero = number(memory::data_type::s32, &conv.zero, 1);
  ready->arguments[DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS] =
      number(memory::data_type::f32, conv.multiplier.raw_data(), k);
  ready->arguments[DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC] = zero;
  ready->arguments[DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST] = zero;
#endif
  return [ready] {
    ready->primitive.execute(ready->stream, ready->arguments);
    ready->stream.wait();
  };
}

}  // namespace athanor::bench

#else

namespace athanor::bench {

bool has_onednn_int8() {
  return false;
}
std::function<void()> onednn_int8(const Int8Conv&) {
  return {};
}

}  // namespace athanor::bench

#endif
