#include "kernels/cuda/context.h"
#include "kernels/cuda/map.h"
#include "kernels/scalar_ops.h"

// Bytes over bandwidth, as in elementwise.cu.

namespace athanor::kernels {
namespace {

template <class Op> struct Forward {
  Op op;
  template <class A> __device__ __forceinline__ A operator()(A x) const { return op.forward(x); }
};
template <class Op> struct Backward {
  Op op;
  template <class A> __device__ __forceinline__ A operator()(A x, A dy) const { return op.backward(x, dy); }
};

}  // namespace

#define ATH_SPECIALISE(Op, name)                                                                          \
  template <> void scalar_forward(CudaContext& context, const Op& op, const Tensor& x, const Tensor& y) { \
    dispatch_floating(y.dtype(), #name, [&]<class T>() {                                                  \
      cuda::map<T>(context, #name, Forward<Op>{op}, Forward<Op>{op}, y, x);                               \
    });                                                                                                   \
  }                                                                                                       \
  template <>                                                                                             \
  void scalar_backward(CudaContext& context, const Op& op, const Tensor& x, const Tensor& dy,             \
                       const Tensor& dx) {                                                                \
    dispatch_floating(dx.dtype(), #name, [&]<class T>() {                                                 \
      cuda::map<T>(context, #name "_backward", Backward<Op>{op}, Backward<Op>{op}, dx, x, dy);            \
    });                                                                                                   \
  }
ATH_SCALAR_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

}  // namespace athanor::kernels
