#include "kernels/reduce.h"

#include <cmath>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/lanes.h"
#include "kernels/reduce_plan.h"
#include "kernels/scratch.h"

namespace athanor::kernels {
namespace {

using cpu::for_each_task;
using cpu::grain_of;

// The work is divided into units by shape alone. A unit's sum is a double; threads share the independent
// units, and a second pass adds them in order.

constexpr std::int64_t kUnit = 8192;     // terms per unit of a row sum
constexpr std::int64_t kStrided = 16;    // strided terms added in f32 before going to f64
constexpr std::int64_t kRowBlock = 128;  // rows added in f32 before going to f64, in a column sum
constexpr std::int64_t kRowUnit = 4096;  // rows per unit
constexpr std::int64_t kColumns = 256;   // columns per unit

std::int64_t units_of(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit;
}

// Stores a sum as y's dtype: to[at] (+)= value.
using Store = void (*)(std::byte* to, std::int64_t at, double value, bool accumulate);

// Scratch memory holds the units' sums as [kept, units, columns]; a row sum has one column.
struct Layout {
  std::int64_t kept, rows, n;  // rows: reduced around the innermost axis, which has n elements
  std::int64_t pieces = 1;     // row sum: units per long row
  std::int64_t group;          // row sum: short rows per unit
  std::int64_t units, columns;

  explicit Layout(const ReducePlan& plan)
      : kept(plan.kept.count()), rows(plan.reduced.count()), n(plan.inner.size) {
    if (plan.inner_reduced) {
      pieces = units_of(n, kUnit);
      group = std::max<std::int64_t>(1, kUnit / n);
      units = units_of(rows, group) * pieces;
      columns = 1;
    } else {
      group = kRowUnit;
      units = units_of(rows, kRowUnit);
      columns = n;
    }
  }
  std::size_t bytes() const { return static_cast<std::size_t>(kept * units * columns) * sizeof(double); }
};

// The innermost axis is reduced: a unit is a group of short rows or a piece of a long one.
template <class A, class T, class F>
void sum_rows(CpuContext& context, const ReducePlan& plan, const Layout& layout, const T* x, const F& f,
              double* sums) {
  const std::int64_t step = plan.inner.x, n = layout.n;
  const auto work = [&](std::int64_t task) {
    const auto base = plan.kept.at(task / layout.units);
    const std::int64_t unit = task % layout.units;
    const std::int64_t from = unit % layout.pieces * kUnit, length = std::min(n - from, kUnit);
    const std::int64_t first = unit / layout.pieces * layout.group;
    const std::int64_t last = std::min(layout.rows, first + layout.group);
    double total = 0;
    for (std::int64_t row = first; row < last; ++row) {
      const T* in = x + base.x + plan.reduced.at(row).x + from * step;
      if (step == 1) {
        total += cpu::sum_lanes<A>(length, [&](std::int64_t i) { return f(A(in[i]), base.y); });
      } else {
        for (std::int64_t i = 0; i < length;) {
          A four[4] = {};
          for (const std::int64_t to = std::min(i + kStrided, length); i < to; ++i)
            four[i & 3] += f(A(in[i * step]), base.y);
          total += (four[0] + four[1]) + (four[2] + four[3]);
        }
      }
    }
    sums[task] = total;
  };
  for_each_task<cpu::kFastType<T>>(context, layout.kept * layout.units,
                                   grain_of(std::min(kUnit, n * layout.rows)), work);
}

// Adds `rows` rows of `width` elements to total[0, width): four rows at a time in f32, then once in f64.
template <class A, class T, class Row, class F>
void add_rows(std::int64_t rows, std::int64_t width, std::int64_t step, const Row& row, const F& f,
              double* total) {
  A sums[kColumns];
  for (std::int64_t j = 0; j < width; ++j) sums[j] = A(0);
  std::int64_t r = 0;
  for (; step == 1 && r + 4 <= rows; r += 4) {
    const T *a = row(r), *b = row(r + 1), *c = row(r + 2), *d = row(r + 3);
    for (std::int64_t j = 0; j < width; ++j)
      sums[j] += (f(A(a[j]), j) + f(A(b[j]), j)) + (f(A(c[j]), j) + f(A(d[j]), j));
  }
  for (; r < rows; ++r) {
    const T* in = row(r);
    for (std::int64_t j = 0; j < width; ++j) sums[j] += f(A(in[j * step]), j);
  }
  for (std::int64_t j = 0; j < width; ++j) total[j] += static_cast<double>(sums[j]);
}

// The innermost axis is kept: adds rows, column by column.
template <class A, class T, class F>
void sum_columns(CpuContext& context, const ReducePlan& plan, const Layout& layout, const T* x, const F& f,
                 double* sums) {
  const std::int64_t n = layout.n, step = plan.inner.x, y_step = plan.inner.y;
  // Joins dense rows too short for a vector loop into a row of `fold` * n elements, folded at the end.
  const bool dense = step == 1 && plan.reduced.rank == 1 && plan.reduced.axes[0].x == n;
  const std::int64_t fold = dense && n < 32 ? 64 / n : 1;
  const std::int64_t blocks = units_of(n, kColumns);

  const auto work = [&](std::int64_t task) {
    const std::int64_t from = task % blocks * kColumns, width = std::min(n - from, kColumns);
    const std::int64_t unit = task / blocks % layout.units;
    const auto base = plan.kept.at(task / blocks / layout.units);
    const T* in = x + base.x + from * step;
    const auto value = [&](A element, std::int64_t j) {
      return f(element, base.y + (from + (fold > 1 ? j % n : j)) * y_step);
    };
    const std::int64_t last = std::min(layout.rows, (unit + 1) * kRowUnit);
    double wide[kColumns];
    for (std::int64_t j = 0; j < width * fold; ++j) wide[j] = 0;
    // The last pass of a block handles the rows that do not fill a joined one.
    for (std::int64_t first = unit * kRowUnit; first < last;) {
      const std::int64_t left = last - first, joined = left >= fold ? fold : left;
      const std::int64_t rows = std::min(left / joined, kRowBlock);
      const auto row = [&](std::int64_t r) { return in + plan.reduced.at(first + r * joined).x; };
      add_rows<A, T>(rows, width * joined, step, row, value, wide);
      first += rows * joined;
    }
    double* total = sums + task / blocks * n + from;
    for (std::int64_t j = 0; j < width; ++j) total[j] = wide[j];
    for (std::int64_t part = 1; part < fold; ++part) {
      for (std::int64_t j = 0; j < width; ++j) total[j] += wide[part * width + j];
    }
  };
  for_each_task<cpu::kFastType<T>>(context, layout.kept * layout.units * blocks,
                                   grain_of(std::min(n, kColumns) * std::min(layout.rows, kRowUnit)), work);
}

// Calls finish(y offset, sum of f(x, y offset)) for every element of y.
template <class T, class F, class Finish>
void reduce(CpuContext& context, const Tensor& x, const Tensor& y, const F& f, const Finish& finish) {
  using A = Accumulate<T>;
  if (x.numel() == 0) {
    for (std::int64_t i = 0; i < y.numel(); ++i) finish(i, 0.0);
    return;
  }
  const ReducePlan plan(x, y);
  const Layout layout(plan);
  const Scratch scratch = context.scratch(layout.bytes());
  double* sums = scratch.as<double>();
  if (plan.inner_reduced) {
    sum_rows<A>(context, plan, layout, x.data<T>(), f, sums);
  } else {
    sum_columns<A>(context, plan, layout, x.data<T>(), f, sums);
  }
  const std::int64_t columns = layout.columns, units = layout.units;
  const auto join_units = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t k = i / columns, j = i % columns;
      double total = sums[k * units * columns + j];
      for (std::int64_t unit = 1; unit < units; ++unit) total += sums[(k * units + unit) * columns + j];
      finish(plan.kept.at(k).y + j * plan.inner.y, total);
    }
  };
  cpu::parallel_for(context, layout.kept * columns, grain_of(units), join_units);
}

}  // namespace

void sum(CpuContext& context, const Tensor& x, Out y, double scale, Write write) {
  const bool add = write == Write::accumulate;
  const auto finish = dispatch_floating(y.dtype(), "sum", [&]<class U>() -> Store {
    return [](std::byte* to, std::int64_t at, double value, bool accumulate) {
      U& out = reinterpret_cast<U*>(to)[at];
      using B = Accumulate<U>;
      out = U(accumulate ? B(out) + B(value) : B(value));
    };
  });
  std::byte* to = y.raw_data();
  dispatch_floating(x.dtype(), "sum", [&]<class T>() {
    reduce<T>(
        context, x, y, [](auto value, std::int64_t) { return value; },
        [=](std::int64_t at, double total) { finish(to, at, total * scale, add); });
  });
}

void squared_deviation(CpuContext& context, const Tensor& x, const Tensor& mean, Out y, double scale) {
  dispatch_floating(x.dtype(), "var", [&]<class T>() {
    using A = Accumulate<T>;
    const A* center = mean.data<A>();
    T* to = y.data<T>();
    reduce<T>(
        context, x, y,
        [=](A value, std::int64_t at) {
          const A deviation = value - center[at];
          return deviation * deviation;
        },
        [=](std::int64_t at, double total) { to[at] = T(A(total * scale)); });
  });
}

void squared_deviation_backward(CpuContext& context, const Tensor& x, const Tensor& mean, const Tensor& dy,
                                Out dx, double scale) {
  dispatch_floating(x.dtype(), "var", [&]<class T>() {
    using A = Accumulate<T>;
    const T *values = x.data<T>(), *gradient = dy.data<T>();
    const A* center = mean.data<A>();
    T* to = dx.data<T>();
    const cpu::Walk<4> walk(dx.shape(), {&x, &mean, &dy, &dx});
    const std::int64_t sx = walk.row_stride(0), sm = walk.row_stride(1);
    cpu::for_each_row<cpu::kFastType<T>>(context, walk, [=](const auto& offset, std::int64_t n) {
      const T *in = values + offset[0], *dout = gradient + offset[2];
      const A* middle = center + offset[1];
      T* out = to + offset[3];
      for (std::int64_t i = 0; i < n; ++i)
        out[i] = T(A(scale) * A(dout[i * sm]) * (A(in[i * sx]) - middle[i * sm]));
    });
  });
}

std::int64_t count_nonfinite(CpuContext&, const Tensor& x) {
  count_host_sync("count_nonfinite", Site::current());
  return dispatch_floating(x.dtype(), "count_nonfinite", [&]<class T>() {
    const T* values = x.data<T>();
    std::int64_t bad = 0;
    for (std::int64_t i = 0; i < x.numel(); ++i) bad += !std::isfinite(Accumulate<T>(values[i]));
    return bad;
  });
}

}  // namespace athanor::kernels
