#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "bench/support/bench.h"
#include "kernels/elementwise.h"

namespace athanor::bench {
namespace {

template <class Op> void add_unary(const char* op, DType dtype, const Shape& shape) {
  const double bytes = static_cast<double>(shape.numel()) * static_cast<double>(size_of(dtype));
  add({op, "fwd", dtype, shape_name(shape)}, {.bytes = 2 * bytes}, [=] {
    const Tensor x = filled(shape, dtype), y = empty_like(x);
    kernels::unary_forward<Op>(cpu_context(), x, y);
    std::vector<double> expected = x.to_vector();
    for (double& value : expected) value = Op::forward(value);
    return Prepared{[=] { kernels::unary_forward<Op>(cpu_context(), x, y); }, max_error(y, expected),
                    2 * epsilon_of(dtype)};
  });
}

}  // namespace

void register_all() {
#define ATH_ADD(Op, name) add_unary<kernels::Op>(#name, DType::f32, {1 << 20});
  ATH_UNARY_OPS(ATH_ADD)
#undef ATH_ADD
}

}  // namespace athanor::bench
