#include "autograd/engine.h"
#include "autograd/pool.h"
#include "bench/support/bench.h"

namespace athanor::bench {
namespace {

using Pool = Tensor (*)(const Tensor&);

// One pooling in double, through the path that tests compare with a reference: the benchmark checks its
// dtype.
struct Case {
  Tensor x, dy, y, dx;

  Case(const Shape& shape, DType dtype, Pool pool) : x(filled(shape, dtype)) {
    require_grad(x);
    y = pool(x);
    dy = filled(y.shape(), dtype, -1, 1, 2);
    backward(y, dy, {.retain_graph = true});
    dx = grad_of(x);
  }
  double error(Pool pool) const {
    const Tensor exact = Tensor::from(x.to_vector(), x.shape());
    require_grad(exact);
    const Tensor expected = pool(exact);
    backward(expected, Tensor::from(dy.to_vector(), dy.shape()));
    return std::max(max_error(y, expected), max_error(dx, grad_of(exact)));
  }
};

void add_pool(const char* op, Pool pool, const Shape& shape, DType dtype) {
  const Case sized(shape, dtype, pool);
  const bool max = op[0] == 'm';
  const double bytes = static_cast<double>(sized.x.bytes() + sized.y.bytes() +
                                           (max ? static_cast<std::size_t>(sized.y.numel()) : 0));
  add({op, "fwd", dtype, shape_name(shape)}, {.bytes = bytes}, [=] {
    const Case c(shape, dtype, pool);
    return Prepared{[=] { pool(c.x); }, c.error(pool), 2 * epsilon_of(dtype)};
  });
  add({op, "bwd", dtype, shape_name(shape)}, {.bytes = bytes}, [=] {
    const Case c(shape, dtype, pool);
    return Prepared{[=] {
                      zero_grad(c.x);
                      backward(c.y, c.dy, {.retain_graph = true});
                    },
                    c.error(pool), 2 * epsilon_of(dtype)};
  });
}

Tensor max_2x2(const Tensor& x) {
  return max_pool2d(x);
}
Tensor max_3x3(const Tensor& x) {
  return max_pool2d(x, {{3, 3}, {2, 2}, {1, 1}});
}
Tensor avg_2x2(const Tensor& x) {
  return avg_pool2d(x);
}
Tensor global(const Tensor& x) {
  return adaptive_avg_pool2d(x, 1, 1);
}

}  // namespace

void register_all() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    add_pool("max_pool2d_2x2", max_2x2, {128, 28, 28, 6}, dtype);
    add_pool("max_pool2d_2x2", max_2x2, {128, 10, 10, 16}, dtype);
    add_pool("max_pool2d_2x2", max_2x2, {32, 8, 8, 32}, dtype);
    add_pool("max_pool2d_2x2", max_2x2, {64, 32, 32, 64}, dtype);
    add_pool("max_pool2d_3x3", max_3x3, {8, 112, 112, 64}, dtype);
    add_pool("avg_pool2d_2x2", avg_2x2, {128, 28, 28, 6}, dtype);
    add_pool("avg_pool2d_global", global, {128, 8, 8, 64}, dtype);
    add_pool("avg_pool2d_global", global, {64, 4, 4, 512}, dtype);
  }
}

}  // namespace athanor::bench
