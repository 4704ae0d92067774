#include "kernels/copy.h"

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"

namespace athanor::bench {
namespace {

// How y is laid out among the axes of x.
struct Layout {
  const char* op;
  Shape x, y;
  Shape axes;  // y's axis i is x's axes[i]
};
const Layout kLayouts[] = {
    {"copy", {64, 1024}, {64, 1024}, {0, 1}},
    {"transpose", {1, 256, 256}, {1, 256, 256}, {0, 2, 1}},
    {"nhwc_to_nchw", {1, 32, 32, 64}, {1, 64, 32, 32}, {0, 3, 1, 2}},
    {"nchw_to_nhwc", {1, 64, 32, 32}, {1, 32, 32, 64}, {0, 2, 3, 1}},
};

Tensor permuted(const Tensor& x, const Shape& axes) {
  Shape shape, strides;
  for (const std::int64_t axis : axes) {
    shape.push_back(x.shape()[static_cast<int>(axis)]);
    strides.push_back(x.strides()[static_cast<int>(axis)]);
  }
  return x.view_as_strided(shape, strides, 0);
}

void add_layout(const Layout& layout, DType from, DType to) {
  const double bytes = bytes_of(layout.x, from) + bytes_of(layout.y, to);
  const bool cast = from != to;
  add({.op = cast ? fmt::format("cast_{}", name_of(from)) : layout.op,
       .dir = "fwd",
       .dtype = to,
       .shape = layout.x,
       .work = {.bytes = bytes},
       .prepare =
           [=] {
             return call({{pattern(layout.x, from)}, result(Role::row_result, layout.y, to)}, 0,
                         [axes = layout.axes](auto& context, std::span<const Tensor> t) {
                           kernels::copy(context, permuted(t[0], axes), t[1]);
                         });
           },
       .tiles = tiles_for(layout.x, size_of(from) < size_of(to) ? from : to)});
}

void add_accumulate(DType dtype) {
  const Shape shape = {64, 1024};
  add({.op = "add_into",
       .dir = "fwd",
       .dtype = dtype,
       .shape = shape,
       .work = {.bytes = 3 * bytes_of(shape, dtype)},
       .prepare =
           [=] {
             return call({{pattern(shape, dtype)}, {pattern(shape, dtype, -1, 1, 2), Role::row_result}},
                         2 * epsilon_of(dtype), [](auto& context, std::span<const Tensor> t) {
                           kernels::add_into(context, t[0], t[1]);
                         });
           },
       .tiles = tiles_for(shape, dtype)});
}

}  // namespace

void add_copy() {
  for (const DType dtype : bench_dtypes()) {
    for (const Layout& layout : kLayouts) add_layout(layout, dtype, dtype);
    add_accumulate(dtype);
    if (dtype == DType::f32) continue;
    add_layout(kLayouts[0], DType::f32, dtype);
    add_layout(kLayouts[0], dtype, DType::f32);
  }
}

}  // namespace athanor::bench
