#include <algorithm>
#include <cmath>

#include "bench/support/bench.h"
#include "kernels/cpu/context.h"
#include "kernels/extremum.h"
#include "kernels/reduce.h"

namespace athanor::bench {
namespace {

double bytes_of(const Shape& shape, DType dtype) {
  return static_cast<double>(shape.numel()) * static_cast<double>(size_of(dtype));
}

// x [rows, columns] summed to y: [1, 1], [rows, 1] or [1, columns].
void add_sum(const char* op, DType dtype, const Shape& shape, const Shape& to) {
  add({op, "fwd", dtype, shape_name(shape)}, {.bytes = bytes_of(shape, dtype)}, [=] {
    const Tensor x = filled(shape, dtype), y = Tensor::empty(to, {DType::f32, kCpu});
    kernels::sum(cpu_context(), x, y);
    std::vector<double> expected(static_cast<std::size_t>(to.numel()));
    const std::vector<double> values = x.to_vector();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const std::int64_t row = to[0] == 1 ? 0 : i / shape[1], column = to[1] == 1 ? 0 : i % shape[1];
      expected[static_cast<std::size_t>(row * to[1] + column)] += values[static_cast<std::size_t>(i)];
    }
    return Prepared{[=] { kernels::sum(cpu_context(), x, y); }, max_error(y, expected), 1e-5};
  });
}

// Largest value and index along the last axis or the first.
void add_max(DType dtype, const Shape& shape, int axis) {
  add({axis == 1 ? "max_rows" : "max_columns", "fwd", dtype, shape_name(shape)},
      {.bytes = bytes_of(shape, dtype)}, [=] {
        const Tensor x = filled(shape, dtype), y = Tensor::empty({shape[1 - axis]}, x.options());
        const Tensor index = Tensor::empty(y.shape(), {DType::i64, kCpu});
        kernels::max(cpu_context(), x, axis, y, index);
        std::vector<double> expected(static_cast<std::size_t>(y.numel()), -INFINITY);
        const std::vector<double> values = x.to_vector();
        for (std::int64_t i = 0; i < x.numel(); ++i) {
          double& best = expected[static_cast<std::size_t>(axis == 1 ? i / shape[1] : i % shape[1])];
          best = std::max(best, values[static_cast<std::size_t>(i)]);
        }
        return Prepared{[=] { kernels::max(cpu_context(), x, axis, y, index); }, max_error(y, expected), 0};
      });
}

}  // namespace

void register_all() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape& shape :
         {Shape{1 << 14, 64}, Shape{1 << 10, 1 << 10}, Shape{64, 1 << 14}, Shape{1 << 18, 64}}) {
      add_sum("sum_all", dtype, shape, {1, 1});
      add_sum("sum_rows", dtype, shape, {shape[0], 1});
      add_sum("sum_columns", dtype, shape, {1, shape[1]});
    }
  }
  add_sum("sum_columns", DType::f32, {1 << 18, 3}, {1, 3});
  add_sum("sum_rows", DType::f32, {1 << 16, 10}, {1 << 16, 1});
  for (const Shape& shape : {Shape{1 << 14, 10}, Shape{1 << 10, 1000}}) {
    add_max(DType::f32, shape, 1);
    add_max(DType::f32, shape, 0);
  }
}

}  // namespace athanor::bench
