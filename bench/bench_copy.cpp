#include "autograd/shape.h"
#include "bench/support/bench.h"
#include "kernels/copy.h"
#include "kernels/cpu/context.h"
#include "kernels/index.h"

// Moving elements: each row's roof is a plain copy of as many bytes.

namespace athanor::bench {
namespace {

// y = x through kernels::copy, into a y that exists; x is a view of a filled tensor.
void add_copy(const char* op, const Shape& shape, DType from, DType to, const std::string& impl,
              const std::function<Tensor(const Tensor&)>& view) {
  const auto make = [=] { return view(filled(shape, from, 0, 100)); };
  const Tensor sized = make();
  const double bytes = static_cast<double>(sized.numel()) * static_cast<double>(size_of(from) + size_of(to));
  add({op, "fwd", to, shape_name(shape), impl}, {.bytes = bytes}, [=] {
    const Tensor x = make(), y = Tensor::empty(x.shape(), {to, kCpu});
    const auto run = [=] { kernels::copy(cpu_context(), x, y); };
    run();
    // An integer is up to 1 away from what it was made of.
    return Prepared{run, max_error(y, x.to_vector()), is_floating(to) ? epsilon_of(to) : 1};
  });
}

void add_permute(const Shape& shape, DType dtype, std::vector<int> order, const char* impl) {
  add_copy("permute", shape, dtype, dtype, impl, [order](const Tensor& x) { return permute(x, order); });
}

void add_cat(const Shape& shape, DType dtype, int axis) {
  const Tensor sized = Tensor::empty(shape, {dtype, kCpu});
  add({"cat", "fwd", dtype, shape_name(shape), axis == 0 ? "axis0" : "last"},
      {.bytes = 4.0 * static_cast<double>(sized.bytes())}, [=] {
        const std::array parts{filled(shape, dtype, -1, 1, 1), filled(shape, dtype, -1, 1, 2)};
        const Tensor y = cat(parts, axis);
        const int along = axis < 0 ? axis + shape.rank() : axis;
        const double error = std::max(max_error(narrow(y, along, 0, shape[along]), parts[0]),
                                      max_error(narrow(y, along, shape[along], shape[along]), parts[1]));
        return Prepared{[=] { cat(parts, axis); }, error, 0};
      });
}

// Row k of y is row index[k] of x, and back.
void add_index(std::int64_t rows, std::int64_t width, std::int64_t count, DType dtype) {
  const double bytes = 2.0 * static_cast<double>(count * width) * static_cast<double>(size_of(dtype));
  const std::string shape = shape_name({rows, width}) + "_" + std::to_string(count);
  const auto indices = [=] {
    std::vector<std::int64_t> at(static_cast<std::size_t>(count));
    for (std::size_t k = 0; k < at.size(); ++k)
      at[k] = static_cast<std::int64_t>(k * 7919 % static_cast<std::size_t>(rows));
    return Tensor::from(at, {count});
  };
  add({"index_select", "fwd", dtype, shape}, {.bytes = bytes}, [=] {
    const Tensor x = filled({rows, width}, dtype), at = indices(),
                 y = Tensor::empty({count, width}, x.options());
    const auto run = [=] { kernels::index_select(cpu_context(), x, 0, at, y); };
    run();
    double worst = 0;
    for (std::int64_t k = 0; k < count; k += count / 16)
      worst = std::max(worst, max_error(narrow(y, 0, k, 1), narrow(x, 0, k * 7919 % rows, 1)));
    return Prepared{run, worst, 0};
  });
  add({"index_select", "bwd", dtype, shape}, {.bytes = bytes * 1.5}, [=] {
    const Tensor dy = filled({count, width}, dtype), at = indices();
    const Tensor dx = Tensor::zeros({rows, width}, dy.options());
    kernels::index_add(cpu_context(), dy, 0, at, dx);
    std::vector<double> expected(static_cast<std::size_t>(rows * width));
    const std::vector<double> added = dy.to_vector();
    for (std::size_t k = 0; k < static_cast<std::size_t>(count); ++k) {
      const std::size_t row = k * 7919 % static_cast<std::size_t>(rows), w = static_cast<std::size_t>(width);
      for (std::size_t i = 0; i < w; ++i) expected[row * w + i] += added[k * w + i];
    }
    const double error = max_error(dx, expected);
    return Prepared{[=] { kernels::index_add(cpu_context(), dy, 0, at, dx); }, error, 16 * epsilon_of(dtype)};
  });
}

void add_gather(std::int64_t rows, std::int64_t classes, DType dtype) {
  const double bytes = static_cast<double>(rows) * (2.0 * static_cast<double>(size_of(dtype)) + 8);
  add({"gather", "fwd", dtype, shape_name({rows, classes})}, {.bytes = bytes}, [=] {
    std::vector<std::int64_t> at(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < at.size(); ++i)
      at[i] = static_cast<std::int64_t>(i % static_cast<std::size_t>(classes));
    const Tensor x = filled({rows, classes}, dtype), index = Tensor::from(at, {rows, 1});
    const Tensor y = Tensor::empty({rows, 1}, x.options());
    const auto run = [=] { kernels::gather(cpu_context(), x, 1, index, y); };
    run();
    const std::vector<double> all = x.to_vector();
    std::vector<double> expected(at.size());
    for (std::size_t i = 0; i < at.size(); ++i)
      expected[i] = all[i * static_cast<std::size_t>(classes) + static_cast<std::size_t>(at[i])];
    return Prepared{run, max_error(y, expected), 0};
  });
}

}  // namespace

void register_all() {
  const Shape large{64, 56, 56, 64};
  const auto same = [](const Tensor& x) { return x; };
  for (const DType dtype : {DType::f32, DType::bf16, DType::u8}) {
    add_copy("copy", large, dtype, dtype, "athanor", same);
    add_permute(large, dtype, {0, 3, 1, 2}, "nhwc_to_nchw");
    add_permute({64, 64, 56, 56}, dtype, {0, 2, 3, 1}, "nchw_to_nhwc");
    add_permute({64, 3, 224, 224}, dtype, {0, 2, 3, 1}, "rgb_to_nhwc");
    add_permute({2048, 2048}, dtype, {1, 0}, "transpose");
  }
  add_copy("cast_f32", large, DType::f32, DType::bf16, "athanor", same);
  add_copy("cast_f32", large, DType::f32, DType::f16, "athanor", same);
  add_copy("cast_f32", large, DType::f32, DType::f64, "athanor", same);
  add_copy("cast_bf16", large, DType::bf16, DType::f32, "athanor", same);
  add_copy("cast_f16", large, DType::f16, DType::f32, "athanor", same);
  add_copy("cast_u8", large, DType::u8, DType::f32, "athanor", same);
  add_copy("cast_f32", large, DType::f32, DType::u8, "athanor", same);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    add_cat({64, 56, 56, 32}, dtype, 0);
    add_cat({64, 56, 56, 32}, dtype, -1);
    add_index(10'000, 256, 8192, dtype);
    add_gather(8192, 1000, dtype);
  }
}

}  // namespace athanor::bench
