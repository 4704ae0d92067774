#include "autograd/elementwise.h"
#include "bench/support/bench.h"
#include "kernels/cpu/context.h"
#include "kernels/elementwise.h"

// Every op of ATH_UNARY_OPS and ATH_BINARY_OPS, and the ways to broadcast. 2^20 elements stay in cache, 2^24
// do not.

namespace athanor::bench {
namespace {

double bytes_of(const Shape& shape, DType dtype) {
  return static_cast<double>(shape.numel()) * static_cast<double>(size_of(dtype));
}

template <class Op> void add_unary(const char* op, DType dtype, const Shape& shape) {
  const double bytes = bytes_of(shape, dtype);
  add({op, "fwd", dtype, shape_name(shape)}, {.bytes = 2 * bytes}, [=] {
    const Tensor x = filled(shape, dtype, 0.1, 2), y = empty_like(x);
    kernels::unary_forward<Op>(cpu_context(), x, y);
    std::vector<double> expected = x.to_vector();
    for (double& value : expected) value = Op::forward(value);
    return Prepared{[=] { kernels::unary_forward<Op>(cpu_context(), x, y); }, max_error(y, expected),
                    4 * epsilon_of(dtype)};
  });
  add({op, "bwd", dtype, shape_name(shape)}, {.bytes = 3 * bytes}, [=] {
    const Tensor x = filled(shape, dtype, 0.1, 2), dy = filled(shape, dtype, -1, 1, 2), dx = empty_like(x);
    kernels::unary_backward<Op>(cpu_context(), x, dy, dx);
    std::vector<double> expected = x.to_vector(), gradient = dy.to_vector();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = Op::backward(expected[i], gradient[i]);
    return Prepared{[=] { kernels::unary_backward<Op>(cpu_context(), x, dy, dx); }, max_error(dx, expected),
                    8 * epsilon_of(dtype)};
  });
}

// b, of shape [R, C], [C] or [R, 1], against a [R, C].
template <class Op> void add_binary(const char* op, DType dtype, const Shape& shape, const Shape& other) {
  const double bytes = 2 * bytes_of(shape, dtype) + bytes_of(other, dtype);
  add({op, "fwd", dtype, shape_name(shape) + "+" + shape_name(other)}, {.bytes = bytes}, [=] {
    const Tensor a = filled(shape, dtype, 0.5, 2), b = filled(other, dtype, 0.5, 2, 2), y = empty_like(a);
    kernels::binary_forward<Op>(cpu_context(), a, b, y);
    std::vector<double> expected = a.to_vector();
    const std::vector<double> right = b.to_vector();
    const auto columns = static_cast<std::size_t>(shape[1]);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::size_t at = right.size() == expected.size() ? i
                             : other.rank() == 1             ? i % columns
                                                             : i / columns;
      expected[i] = Op::forward(expected[i], right[at]);
    }
    return Prepared{[=] { kernels::binary_forward<Op>(cpu_context(), a, b, y); }, max_error(y, expected),
                    2 * epsilon_of(dtype)};
  });
}

}  // namespace

void register_all() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
#define ATH_ADD(Op, name) add_unary<kernels::Op>(#name, dtype, {1 << 20});
    ATH_UNARY_OPS(ATH_ADD)
#undef ATH_ADD
#define ATH_ADD(Op, name) add_binary<kernels::Op>(#name, dtype, {1 << 14, 64}, {1 << 14, 64});
    ATH_BINARY_OPS(ATH_ADD)
#undef ATH_ADD
  }
  add_unary<kernels::Relu>("relu", DType::f32, {1 << 24});
  add_unary<kernels::Gelu>("gelu", DType::f32, {1 << 24});
  add_binary<kernels::Add>("add", DType::f32, {1 << 18, 64}, {1 << 18, 64});
  for (const std::int64_t columns : {16, 64, 1024}) {
    const std::int64_t rows = (1 << 20) / columns;
    add_binary<kernels::Add>("add", DType::f32, {rows, columns}, {columns});
    add_binary<kernels::Mul>("mul", DType::f32, {rows, columns}, {rows, 1});
  }
}

}  // namespace athanor::bench
