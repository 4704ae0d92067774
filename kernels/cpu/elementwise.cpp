#include "kernels/elementwise.h"

#include <algorithm>
#include <atomic>

#include "kernels/cpu/context.h"
#include "kernels/cpu/elementwise_map.h"

namespace athanor::kernels {
namespace {

using cpu::map;

// Calls f.operator()<T>() with the storage type of a dtype that Op computes on.
template <class Op, class F> void dispatch_operand(DType dtype, const F& f) {
  if constexpr (kTakesIntegers<Op>) {
    dispatch_number(dtype, "elementwise", f);
  } else {
    dispatch_floating(dtype, "elementwise", f);
  }
}

template <class Op> void run_unary(CpuContext& context, const Tensor& x, const Tensor& y) {
  dispatch_operand<Op>(y.dtype(), [&]<class T>() {
    map<T, T, cpu::kOpGrain<Op>>(
        context, [](auto value) { return Op::forward(value); }, y, x);
  });
}

template <class Op> void run_binary(CpuContext& context, const Tensor& a, const Tensor& b, const Tensor& y) {
  dispatch_operand<Op>(y.dtype(), [&]<class T>() {
    map<T, T, cpu::kOpGrain<Op>>(
        context, [](auto left, auto right) { return Op::forward(left, right); }, y, a, b);
  });
}

}  // namespace

void affine(CpuContext& context, const Tensor& x, double scale, double shift, Out y) {
  dispatch_floating(y.dtype(), "affine", [&]<class T>() {
    using A = Accumulate<T>;
    map<T>(
        context, [scale = A(scale), shift = A(shift)](A value) { return std::fma(value, scale, shift); }, y,
        x);
  });
}

void check_divisors(CpuContext& context, const char* op, const Tensor& b) {
  std::atomic<bool> bad{false};  // threads may not throw
  dispatch_number(b.dtype(), op, [&]<class T>() {
    using A = ComputeType<T>;
    const cpu::Walk<1> walk(b.shape(), {&b});
    const T* from = b.data<T>();
    const std::int64_t step = walk.row_stride(0);
    cpu::for_each_row(context, walk, [&, from, step](const auto& offset, std::int64_t n) {
      bool any = false;
      for (std::int64_t i = 0; i < n; ++i) any |= A(from[offset[0] + i * step]) == A(0);
      if (any) bad.store(true, std::memory_order_relaxed);
    });
  });
  if (!bad.load(std::memory_order_relaxed)) return;
  const std::vector<double> values = b.to_vector();
  athanor::detail::fail<>("{}: integers must not be divided by 0, but element {} of the divisor {} is 0", op,
                          std::find(values.begin(), values.end(), 0.0) - values.begin(), b.shape());
}

#define ATH_SPECIALISE(Op, name)                                                               \
  template <> void unary_forward<Op>(CpuContext & context, const Tensor& x, const Tensor& y) { \
    run_unary<Op>(context, x, y);                                                              \
  }
ATH_UNARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

#define ATH_SPECIALISE(Op, name)                                                                     \
  template <>                                                                                        \
  void binary_forward<Op>(CpuContext & context, const Tensor& a, const Tensor& b, const Tensor& y) { \
    run_binary<Op>(context, a, b, y);                                                                \
  }
ATH_BINARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

}  // namespace athanor::kernels
