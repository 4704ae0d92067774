#include "kernels/cuda/map.h"
#include "kernels/cuda/walk.h"
#include "kernels/elementwise.h"

// Elementwise ops only move memory: their time is bytes over bandwidth. Dense operands go by 16 bytes a
// thread (map.h), in a kernel for each op; the rest one element at a time, by index, in one kernel for all.

namespace athanor::kernels {
namespace {

constexpr int kThreads = 256;

// The operands of one op, y last.
template <class T, int N> struct Operands { T* pointer[N]; };

// What F computes of elements of T, rounded once.
template <class T, class F> struct Rounded {
  F f;
  template <class... X> __device__ __forceinline__ T operator()(X... x) const {
    return T(f(Accumulate<T>(x)...));
  }
};

template <class T, class F, int N, std::size_t... K>
__device__ __forceinline__ T apply(const F& f, const T (&x)[N], std::index_sequence<K...>) {
  return f(x[K]...);
}

/// N operands of T, the last written: N * sizeof(T) bytes and a handful of FLOPs an element.
template <class T, int N, class F>
__global__ void __launch_bounds__(kThreads) map_strided(Operands<T, N> operands, cuda::Walk<N> walk, F f) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t flat = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; flat < walk.numel;
       flat += step) {
    const auto offset = walk.offsets(flat);
    T x[N - 1];
#pragma unroll
    for (int k = 0; k < N - 1; ++k) x[k] = operands.pointer[k][offset[k]];
    operands.pointer[N - 1][offset[N - 1]] = apply(f, x, std::make_index_sequence<N - 1>());
  }
}

// Functors rather than lambdas: a kernel's name then says what it computes.
template <class Op> struct Forward {
  template <class... A> __device__ __forceinline__ auto operator()(A... x) const { return Op::forward(x...); }
};
template <class Op> struct Backward {
  template <class A> __device__ __forceinline__ A operator()(A saved, A dy) const {
    return Op::backward(saved, dy);
  }
};
template <class A> struct Affine {
  A scale, shift;
  __device__ __forceinline__ A operator()(A x) const { return std::fma(x, scale, shift); }
};

// All ops of a list, as one functor: the branch is the same for the whole grid.
enum class Op {
#define ATH_OP(Op, name) Op, Op##Backward,
  ATH_UNARY_OPS(ATH_OP) ATH_BINARY_OPS(ATH_OP)
#undef ATH_OP
};
template <class A> __device__ A evaluate(Op op, A x) {
  switch (op) {
#define ATH_OP(Name, name) \
  case Op::Name: return Name::forward(x);
    ATH_UNARY_OPS(ATH_OP)
#undef ATH_OP
    default: return A(0);
  }
}
template <class A> __device__ A evaluate(Op op, A x, A y) {
  switch (op) {
#define ATH_OP(Name, name) \
  case Op::Name##Backward: return Name::backward(x, y);
    ATH_UNARY_OPS(ATH_OP)
#undef ATH_OP
#define ATH_OP(Name, name) \
  case Op::Name: return Name::forward(x, y);
    ATH_BINARY_OPS(ATH_OP)
#undef ATH_OP
    default: return A(0);
  }
}
struct AnyOp {
  Op op;
  template <class... A> __device__ __forceinline__ auto operator()(A... x) const {
    return evaluate(op, x...);
  }
};

// y = f(x...), the operands broadcast to y's shape. `strided` computes the same, where they are not dense.
template <class T, class F, class Strided, class... Tensors>
void map(const CudaContext& context, const char* name, const F& f, const Strided& strided, const Tensor& y,
         const Tensors&... x) {
  constexpr int N = sizeof...(x) + 1;
  const cuda::Walk<N> walk = cuda::walk_of<N>(y.shape(), x..., y);
  if (walk.numel == 0) return;
  if (walk.dense() && cuda::map_aligned(context, name, walk.numel, Rounded<T, F>{f}, y.data<T>(),
                                        static_cast<const T*>(x.template data<T>())...))
    return;
  const Operands<T, N> operands{{x.template data<T>()..., y.data<T>()}};
  cuda::launch(context, {name, cuda::blocks_for(context, walk.numel, kThreads), kThreads},
               map_strided<T, N, Rounded<T, Strided>>, operands, walk, Rounded<T, Strided>{strided});
}

}  // namespace

template <> void affine(CudaContext& context, const Tensor& x, double scale, double shift, const Tensor& y) {
  dispatch_floating(y.dtype(), "affine", [&]<class T>() {
    using A = Accumulate<T>;
    const Affine<A> f{A(scale), A(shift)};
    map<T>(context, "affine", f, f, y, x);
  });
}

#define ATH_SPECIALISE(Name, name)                                                                         \
  template <> void unary_forward<Name>(CudaContext & context, const Tensor& x, const Tensor& y) {          \
    dispatch_floating(y.dtype(), #name,                                                                    \
                      [&]<class T>() { map<T>(context, #name, Forward<Name>{}, AnyOp{Op::Name}, y, x); }); \
  }                                                                                                        \
  template <>                                                                                              \
  void unary_backward<Name>(CudaContext & context, const Tensor& saved, const Tensor& dy,                  \
                            const Tensor& dx) {                                                            \
    dispatch_floating(dx.dtype(), #name, [&]<class T>() {                                                  \
      map<T>(context, #name "_backward", Backward<Name>{}, AnyOp{Op::Name##Backward}, dx, saved, dy);      \
    });                                                                                                    \
  }
ATH_UNARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

#define ATH_SPECIALISE(Name, name)                                                                      \
  template <>                                                                                           \
  void binary_forward<Name>(CudaContext & context, const Tensor& a, const Tensor& b, const Tensor& y) { \
    dispatch_floating(y.dtype(), #name, [&]<class T>() {                                                \
      map<T>(context, #name, Forward<Name>{}, AnyOp{Op::Name}, y, a, b);                                \
    });                                                                                                 \
  }
ATH_BINARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

}  // namespace athanor::kernels
