#include "kernels/pool.h"

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"
#include "kernels/cpu/context.h"

namespace athanor::bench {
namespace {

using kernels::PoolAxis;
using kernels::PoolWindows;

struct Layer {
  Shape x;
  std::int64_t outputs, window, stride, padding;
  bool max;
};
// Of CifarNet, of ResNet's stem and of its end.
const Layer kLayers[] = {
    {{1, 32, 32, 64}, 16, 2, 2, 0, true},
    {{1, 112, 112, 64}, 56, 3, 2, 1, true},
    {{1, 7, 7, 2048}, 1, 7, 7, 0, false},
};

PoolWindows windows_of(const Layer& l) {
  const PoolAxis axis{
      .inputs = l.x[1], .outputs = l.outputs, .window = l.window, .stride = l.stride, .padding = l.padding};
  return {.h = axis, .w = axis};
}

void add_max(const Layer& l, DType dtype) {
  const Shape y = {l.x[0], l.outputs, l.outputs, l.x[3]};
  const PoolWindows windows = windows_of(l);
  // x, y and a byte of index per output.
  const double bytes = bytes_of(l.x, dtype) + bytes_of(y, dtype) + bytes_of(y, DType::u8);
  const std::string op = fmt::format("max_pool_{}s{}", l.window, l.stride);
  add({.op = op,
       .dir = "fwd",
       .dtype = dtype,
       .shape = l.x,
       .work = {.bytes = bytes},
       .prepare =
           [=] {
             return call({{pattern(l.x, dtype)},
                          result(Role::row_result, y, dtype),
                          result(Role::row_result, y, DType::u8)},
                         0, [windows](auto& context, std::span<const Tensor> t) {
                           kernels::max_pool_forward(context, windows, t[0], t[1], t[2]);
                         });
           },
       .tiles = tiles_for(l.x, dtype)});
  add({.op = op,
       .dir = "bwd",
       .dtype = dtype,
       .shape = l.x,
       .work = {.bytes = bytes},
       .prepare =
           [=] {
             const Tensor x = pattern(l.x, dtype), pooled = Tensor::empty(y, {dtype, kCpu});
             const Tensor index = Tensor::empty(y, {DType::u8, kCpu});
             kernels::max_pool_forward(cpu_context(), windows, x, pooled, index);
             return call({{pattern(y, dtype, -1, 1, 2)}, {index}, result(Role::row_result, l.x, dtype)},
                         2 * epsilon_of(dtype), [windows](auto& context, std::span<const Tensor> t) {
                           kernels::max_pool_backward(context, windows, t[0], t[1], t[2]);
                         });
           },
       .tiles = tiles_for(l.x, dtype)});
}

void add_average(const Layer& l, DType dtype) {
  const Shape y = {l.x[0], l.outputs, l.outputs, l.x[3]};
  const PoolWindows windows = windows_of(l);
  const double bytes = bytes_of(l.x, dtype) + bytes_of(y, dtype), tolerance = 2 * epsilon_of(dtype) + 1e-5;
  const std::string op = fmt::format("avg_pool_{}s{}", l.window, l.stride);
  add({.op = op,
       .dir = "fwd",
       .dtype = dtype,
       .shape = l.x,
       .work = {.bytes = bytes},
       .prepare =
           [=] {
             return call({{pattern(l.x, dtype)}, result(Role::row_result, y, dtype)}, tolerance,
                         [windows](auto& context, std::span<const Tensor> t) {
                           kernels::avg_pool_forward(context, windows, t[0], t[1]);
                         });
           },
       .tiles = tiles_for(l.x, dtype)});
  add({.op = op,
       .dir = "bwd",
       .dtype = dtype,
       .shape = l.x,
       .work = {.bytes = bytes},
       .prepare =
           [=] {
             return call({{pattern(y, dtype)}, result(Role::row_result, l.x, dtype)}, tolerance,
                         [windows](auto& context, std::span<const Tensor> t) {
                           kernels::avg_pool_backward(context, windows, t[0], t[1]);
                         });
           },
       .tiles = tiles_for(l.x, dtype)});
}

}  // namespace

void add_pool() {
  for (const DType dtype : bench_dtypes()) {
    for (const Layer& layer : kLayers) (layer.max ? add_max : add_average)(layer, dtype);
  }
}

}  // namespace athanor::bench
