#pragma once

#include <dnnl.hpp>

// Differences between oneDNN 2.x and 3.x.

namespace athanor::cpu {

inline const dnnl::engine& engine() {
  static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

struct ConvArguments {
  dnnl::memory::dims stride, dilation, padding;
};
inline constexpr auto kDirect = dnnl::algorithm::convolution_direct;

inline auto forward_desc(const ConvArguments& c, dnnl::prop_kind kind, const dnnl::memory::desc& x,
                         const dnnl::memory::desc& w, const dnnl::memory::desc& bias,
                         const dnnl::memory::desc& y, const dnnl::primitive_attr& attr) {
  using Forward = dnnl::convolution_forward;
#if DNNL_VERSION_MAJOR >= 3
  return Forward::primitive_desc(engine(), kind, kDirect, x, w, bias, y, c.stride, c.dilation, c.padding,
                                 c.padding, attr);
#else
  return Forward::primitive_desc(
      Forward::desc(kind, kDirect, x, w, bias, y, c.stride, c.dilation, c.padding, c.padding), attr,
      engine());
#endif
}

template <class Backward>
auto backward_desc(const ConvArguments& c, const dnnl::memory::desc& first, const dnnl::memory::desc& second,
                   const dnnl::memory::desc& third, const dnnl::convolution_forward::primitive_desc& hint,
                   const dnnl::primitive_attr& attr) {
#if DNNL_VERSION_MAJOR >= 3
  return typename Backward::primitive_desc(engine(), kDirect, first, second, third, c.stride, c.dilation,
                                           c.padding, c.padding, hint, attr);
#else
  return typename Backward::primitive_desc(
      typename Backward::desc(kDirect, first, second, third, c.stride, c.dilation, c.padding, c.padding),
      attr, engine(), hint);
#endif
}

inline auto matmul_desc(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                        const dnnl::memory::desc& bias, const dnnl::memory::desc& y,
                        const dnnl::primitive_attr& attr) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul::primitive_desc(engine(), a, b, bias, y, attr);
#else
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, bias, y), attr, engine());
#endif
}

inline dnnl::memory::dims dims_of(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  return desc.get_dims();
#else
  return desc.dims();
#endif
}

inline bool same(const dnnl::memory::desc& a, const dnnl::memory::desc& b) {
  return a == b;
}

}  // namespace athanor::cpu
