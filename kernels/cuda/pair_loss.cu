#include "kernels/cuda/context.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/total.h"
#include "kernels/loss.h"

// A loss over pairs reads its operands once: bytes over bandwidth, but for the f64 that checks gradients.

namespace athanor::kernels {
namespace {

template <class Op, class T> struct Value {
  using A = Accumulate<T>;
  Op op;
  template <class... W> __device__ __forceinline__ A operator()(T a, T b, W... weight) const {
    return op.value(A(a), A(b), weight...);
  }
};

template <class Op, class T> struct Gradient {
  using A = Accumulate<T>;
  using IsHeavy = std::bool_constant<cuda::kIsHeavy<Op>>;
  Op op;
  A scale;
  template <class... W> __device__ __forceinline__ T operator()(A dy, T a, T b, W... weight) const {
    return T(scale * dy * op.slope(A(a), A(b), weight...));
  }
};
template <class Op, class T> struct GradientOfSum {
  using A = Accumulate<T>;
  using IsHeavy = std::bool_constant<cuda::kIsHeavy<Op>>;
  Op op;
  A scale;
  const A* dy;
  template <class... W> __device__ __forceinline__ T operator()(T a, T b, W... weight) const {
    return T(scale * *dy * op.slope(A(a), A(b), weight...));
  }
};

// Calls f.operator()<T>(operands...) with the pointers the op reads.
template <class Op, class F>
void with_operands(const Tensor& a, const Tensor& b, const Tensor& weight, const F& f) {
  dispatch_floating(a.dtype(), "pair_loss", [&]<class T>() {
    const T *left = a.data<T>(), *right = b.data<T>();
    if constexpr (Op::kWeighted) {
      const Accumulate<T>* third = weight.data<Accumulate<T>>();
      f.template operator()<T>(left, right, third);
    } else {
      f.template operator()<T>(left, right);
    }
  });
}

template <class Op>
void run_backward(CudaContext& context, const Op& op, const Tensor& a, const Tensor& b, const Tensor& weight,
                  double scale, const Tensor& dy, const Tensor& da) {
  with_operands<Op>(a, b, weight, [&]<class T>(const auto*... x) {
    using A = Accumulate<T>;
    const A *gradient = dy.data<A>(), factor = A(scale);
    T* out = da.data<T>();
    if (dy.rank() == 0) {
      cuda::map_dense(context, "pair_loss_backward", a.numel(), GradientOfSum<Op, T>{op, factor, gradient},
                      out, x...);
    } else {
      cuda::map_dense(context, "pair_loss_backward", a.numel(), Gradient<Op, T>{op, factor}, out, gradient,
                      x...);
    }
  });
}

}  // namespace

#define ATH_SPECIALISE_BACKWARD(...)                                                                  \
  template <>                                                                                         \
  void pair_loss_backward<__VA_ARGS__>(CudaContext & context, const __VA_ARGS__& op, const Tensor& a, \
                                       const Tensor& b, const Tensor& weight, double scale,           \
                                       const Tensor& dy, const Tensor& da) {                          \
    run_backward(context, op, a, b, weight, scale, dy, da);                                           \
  }
#define ATH_SPECIALISE(Op)                                                                                  \
  template <>                                                                                               \
  void pair_loss<Op>(CudaContext & context, const Op& op, const Tensor& a, const Tensor& b,                 \
                     const Tensor& weight, const Tensor& y) {                                               \
    with_operands<Op>(a, b, weight, [&]<class T>(const auto*... x) {                                        \
      cuda::map_dense(context, "pair_loss", a.numel(), Value<Op, T>{op}, y.data<Accumulate<T>>(), x...);    \
    });                                                                                                     \
  }                                                                                                         \
  template <>                                                                                               \
  void pair_loss_sum<Op>(CudaContext & context, const Op& op, const Tensor& a, const Tensor& b,             \
                         const Tensor& weight, double scale, const Tensor& y) {                             \
    with_operands<Op>(a, b, weight, [&]<class T>(const auto*... x) {                                        \
      cuda::total(context, "pair_loss", a.numel(), Value<Op, T>{op}, scale, y.data<Accumulate<T>>(), x...); \
    });                                                                                                     \
  }                                                                                                         \
  ATH_SPECIALISE_BACKWARD(Op)
ATH_PAIR_LOSSES(ATH_SPECIALISE)
#undef ATH_SPECIALISE
#define ATH_SPECIALISE(Op) ATH_SPECIALISE_BACKWARD(OfTarget<Op>)
ATH_TARGET_LOSSES(ATH_SPECIALISE)
#undef ATH_SPECIALISE
#undef ATH_SPECIALISE_BACKWARD

}  // namespace athanor::kernels
