#include "kernels/cuda/context.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/map.h"
#include "kernels/elementwise.h"

// Elementwise ops only move memory: their time is bytes over bandwidth. Dense operands go by 16 bytes a
// thread, in a kernel for each op; the rest one element at a time, by index, in one kernel for all.

namespace athanor::kernels {
namespace {

using cuda::map;
using cuda::OpFor;

// Functors rather than lambdas: a kernel's name then says what it computes.
template <class Op> struct Forward {
  template <class... A> __device__ __forceinline__ auto operator()(A... x) const { return Op::forward(x...); }
};
template <class Op> struct Backward {
  template <class A> __device__ __forceinline__ A operator()(A saved, A dy) const {
    return Op::backward(saved, dy);
  }
};
// An op's derivative by its first or second operand.
template <class Op> struct First {
  template <class A> __device__ __forceinline__ A operator()(A a, A b, A dy) const {
    return Op::first(a, b, dy);
  }
};
template <class Op> struct Second {
  template <class A> __device__ __forceinline__ A operator()(A a, A b, A dy) const {
    return Op::second(a, b, dy);
  }
};
template <class A> struct Affine {
  A scale, shift;
  __device__ __forceinline__ A operator()(A x) const { return std::fma(x, scale, shift); }
};

// All ops of a list, as one functor of floating numbers, for results of type T: the branch is the same for
// the whole grid.
enum class Op {
#define ATH_OP(Op, name) Op, Op##Backward,
  ATH_UNARY_OPS(ATH_OP) ATH_BINARY_OPS(ATH_OP)
#undef ATH_OP
#define ATH_OP(Op, name) Op##First, Op##Second,
      ATH_BINARY_GRADIENTS(ATH_OP)
#undef ATH_OP
};
template <class T, class A> __device__ A evaluate(Op op, A x) {
  switch (op) {
#define ATH_OP(Name, name) \
  case Op::Name: return OpFor<Name, T>::forward(x);
    ATH_UNARY_OPS(ATH_OP)
#undef ATH_OP
    default: return A(0);
  }
}
template <class T, class A> __device__ A evaluate(Op op, A x, A y) {
  switch (op) {
#define ATH_OP(Name, name) \
  case Op::Name##Backward: return OpFor<Name, T>::backward(x, y);
    ATH_UNARY_OPS(ATH_OP)
#undef ATH_OP
#define ATH_OP(Name, name) \
  case Op::Name: return Name::forward(x, y);
    ATH_BINARY_OPS(ATH_OP)
#undef ATH_OP
    default: return A(0);
  }
}
template <class T, class A> __device__ A evaluate(Op op, A a, A b, A dy) {
  switch (op) {
#define ATH_OP(Name, name)                            \
  case Op::Name##First: return Name::first(a, b, dy); \
  case Op::Name##Second: return Name::second(a, b, dy);
    ATH_BINARY_GRADIENTS(ATH_OP)
#undef ATH_OP
    default: return A(0);
  }
}
template <class T> struct AnyOp {
  Op op;
  template <class... A> __device__ __forceinline__ auto operator()(A... x) const {
    return evaluate<T>(op, x...);
  }
};

// What computes an op of strided operands: for integers, which few ops take, a kernel of its own.
template <class T, class Name> auto strided(Op op) {
  if constexpr (std::is_integral_v<T>) {
    return Forward<Name>{};
  } else {
    return AnyOp<T>{op};
  }
}

// Calls f.operator()<T>() with the storage type of a dtype that the op computes on.
template <class Name, class F> void dispatch_operand(DType dtype, const char* name, const F& f) {
  if constexpr (kTakesIntegers<Name>) {
    dispatch_number(dtype, name, f);
  } else {
    dispatch_floating(dtype, name, f);
  }
}

}  // namespace

void affine(CudaContext& context, const Tensor& x, double scale, double shift, Out y) {
  dispatch_floating(y.dtype(), "affine", [&]<class T>() {
    using A = Accumulate<T>;
    const Affine<A> f{A(scale), A(shift)};
    map<T>(context, "affine", f, f, y, x);
  });
}

void check_divisors(CudaContext&, const char*, const Tensor&) {}

#define ATH_SPECIALISE(Name, name)                                                                     \
  template <> void unary_forward<Name>(CudaContext & context, const Tensor& x, const Tensor& y) {      \
    dispatch_operand<Name>(y.dtype(), #name, [&]<class T>() {                                          \
      map<T>(context, #name, Forward<OpFor<Name, T>>{}, strided<T, Name>(Op::Name), y, x);             \
    });                                                                                                \
  }                                                                                                    \
  template <>                                                                                          \
  void unary_backward<Name>(CudaContext & context, const Tensor& saved, const Tensor& dy,              \
                            const Tensor& dx) {                                                        \
    dispatch_floating(dx.dtype(), #name, [&]<class T>() {                                              \
      map<T>(context, #name "_backward", Backward<OpFor<Name, T>>{}, AnyOp<T>{Op::Name##Backward}, dx, \
             saved, dy);                                                                               \
    });                                                                                                \
  }
ATH_UNARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

#define ATH_SPECIALISE(Name, name)                                                                      \
  template <>                                                                                           \
  void binary_forward<Name>(CudaContext & context, const Tensor& a, const Tensor& b, const Tensor& y) { \
    dispatch_operand<Name>(y.dtype(), #name, [&]<class T>() {                                           \
      map<T>(context, #name, Forward<Name>{}, strided<T, Name>(Op::Name), y, a, b);                     \
    });                                                                                                 \
  }
ATH_BINARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

#define ATH_SPECIALISE(Name, name)                                                                    \
  template <>                                                                                         \
  void binary_backward<Name>(CudaContext & context, int operand, const Tensor& a, const Tensor& b,    \
                             const Tensor& dy, const Tensor& dx) {                                    \
    dispatch_floating(dx.dtype(), #name, [&]<class T>() {                                             \
      if (operand == 0) {                                                                             \
        map<T>(context, #name "_backward", First<Name>{}, AnyOp<T>{Op::Name##First}, dx, a, b, dy);   \
      } else {                                                                                        \
        map<T>(context, #name "_backward", Second<Name>{}, AnyOp<T>{Op::Name##Second}, dx, a, b, dy); \
      }                                                                                               \
    });                                                                                               \
  }
ATH_BINARY_GRADIENTS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

}  // namespace athanor::kernels
