#include "kernels/reduce.h"

#include <cmath>

#include "kernels/cpu/iterate.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/reduce_plan.h"

namespace athanor::kernels {
namespace {

using cpu::parallel_for;
using cpu::ReducePlan;
using cpu::vectorize;

// Both sums below cut the work into units by shape alone. A unit's sum is a double; units are independent, so
// they are what threads share, and a second pass adds them up in order.

constexpr std::int64_t kUnit = 8192;     // terms of a unit of a row sum
constexpr std::int64_t kRowBlock = 128;  // rows added in f32 before they go to f64, in a column sum
constexpr std::int64_t kRowUnit = 4096;  // rows of a unit
constexpr std::int64_t kColumns = 256;   // columns of a unit

std::int64_t units_of(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit;
}

std::int64_t grain_of(std::int64_t elements_per_task) {
  return std::max<std::int64_t>(1, cpu::kGrain / std::max<std::int64_t>(1, elements_per_task));
}

// The innermost axis is reduced: each of `kept` outputs is a sum of rows.
template <class A, class T, class F, class Finish>
void sum_rows(CpuContext& context, const ReducePlan& plan, const T* x, const F& f, const Finish& finish) {
  const std::int64_t n = plan.inner.size, step = plan.inner.x;
  const std::int64_t kept = plan.kept.count(), rows = plan.reduced.count();
  const std::int64_t pieces = std::max<std::int64_t>(1, units_of(n, kUnit));  // of a row
  const std::int64_t group = std::max<std::int64_t>(1, kUnit / std::max<std::int64_t>(1, n));
  const std::int64_t units = units_of(rows, group) * pieces;

  const auto unit_sum = [&](std::int64_t k, std::int64_t unit) {
    const auto base = plan.kept.at(k);
    const std::int64_t from = unit % pieces * kUnit, length = std::min(n - from, kUnit);
    const std::int64_t first = unit / pieces * group, last = std::min(rows, first + group);
    double total = 0;
    for (std::int64_t row = first; row < last; ++row) {
      const T* in = x + base.x + plan.reduced.at(row).x + from * step;
      if (step == 1) {
        total += cpu::sum_lanes<A>(length, [&](std::int64_t i) { return f(A(in[i]), base.y); });
      } else {
        total += cpu::sum_lanes<A>(length, [&](std::int64_t i) { return f(A(in[i * step]), base.y); });
      }
    }
    return total;
  };

  if (units <= 1) {
    parallel_for(context, kept, grain_of(n * rows), [&](std::int64_t begin, std::int64_t end) {
      vectorize([&] {
        for (std::int64_t k = begin; k < end; ++k)
          finish(plan.kept.at(k).y, units == 0 ? 0.0 : unit_sum(k, 0));
      });
    });
    return;
  }
  const Scratch scratch = context.scratch(static_cast<std::size_t>(kept * units) * sizeof(double));
  double* sums = scratch.as<double>();
  parallel_for(context, kept * units, grain_of(kUnit), [&](std::int64_t begin, std::int64_t end) {
    vectorize([&] {
      for (std::int64_t i = begin; i < end; ++i) sums[i] = unit_sum(i / units, i % units);
    });
  });
  for (std::int64_t k = 0; k < kept; ++k) {
    double total = 0;
    for (std::int64_t unit = 0; unit < units; ++unit) total += sums[k * units + unit];
    finish(plan.kept.at(k).y, total);
  }
}

// Adds `rows` rows of `width` elements to total[0, width): four rows at a time in f32, then once in f64.
template <class A, class T, class Row, class F>
void add_rows(std::int64_t rows, std::int64_t width, std::int64_t step, const Row& row, const F& f,
              double* total) {
  A sums[kColumns];
  for (std::int64_t j = 0; j < width; ++j) sums[j] = A(0);
  std::int64_t r = 0;
  if (step == 1) {
    for (; r + 4 <= rows; r += 4) {
      const T *a = row(r), *b = row(r + 1), *c = row(r + 2), *d = row(r + 3);
      for (std::int64_t j = 0; j < width; ++j)
        sums[j] += (f(A(a[j]), j) + f(A(b[j]), j)) + (f(A(c[j]), j) + f(A(d[j]), j));
    }
    for (; r < rows; ++r) {
      const T* in = row(r);
      for (std::int64_t j = 0; j < width; ++j) sums[j] += f(A(in[j]), j);
    }
  } else {
    for (; r < rows; ++r) {
      const T* in = row(r);
      for (std::int64_t j = 0; j < width; ++j) sums[j] += f(A(in[j * step]), j);
    }
  }
  for (std::int64_t j = 0; j < width; ++j) total[j] += static_cast<double>(sums[j]);
}

// The innermost axis is kept: rows are added up, column by column.
template <class A, class T, class F, class Finish>
void sum_columns(CpuContext& context, const ReducePlan& plan, const T* x, const F& f, const Finish& finish) {
  const std::int64_t n = plan.inner.size, step = plan.inner.x, y_step = plan.inner.y;
  const std::int64_t kept = plan.kept.count(), rows = plan.reduced.count();
  // Dense rows too short for a vector loop are joined: a row of `fold` * n elements, folded at the end.
  const bool dense = step == 1 && plan.reduced.rank == 1 && plan.reduced.axes[0].x == n;
  const std::int64_t fold = dense && n < 32 ? 64 / n : 1;
  const std::int64_t blocks = units_of(n, kColumns), units = units_of(rows, kRowUnit);

  // Columns [from, from + width) of rows [first, last).
  const auto unit_sum = [&](std::int64_t k, std::int64_t from, std::int64_t width, std::int64_t unit,
                            double* total) {
    const auto base = plan.kept.at(k);
    const T* in = x + base.x + from * step;
    const auto value = [&](A element, std::int64_t j) {
      return f(element, base.y + (from + (fold > 1 ? j % n : j)) * y_step);
    };
    const std::int64_t last = std::min(rows, (unit + 1) * kRowUnit);
    double wide[kColumns] = {};
    for (std::int64_t first = unit * kRowUnit; first < last;) {
      const std::int64_t here = std::min(last - first, kRowBlock * fold);
      const std::int64_t whole = here / fold, rest = here % fold;
      const auto row = [&](std::int64_t r) { return in + plan.reduced.at(first + r * fold).x; };
      add_rows<A, T>(whole, width * fold, step, row, value, wide);
      if (rest > 0)
        add_rows<A, T>(
            1, width * rest, step, [&](std::int64_t) { return row(whole); }, value, wide);
      first += here;
    }
    for (std::int64_t j = 0; j < width; ++j) total[j] = 0;
    for (std::int64_t part = 0; part < fold; ++part) {
      for (std::int64_t j = 0; j < width; ++j) total[j] += wide[part * width + j];
    }
  };

  const std::int64_t tasks = kept * blocks * units;
  const bool direct = units <= 1;
  const Scratch scratch =
      context.scratch(direct ? 0 : static_cast<std::size_t>(kept * units * n) * sizeof(double));
  double* sums = scratch.as<double>();
  const std::int64_t per_task = std::min(n, kColumns) * std::min(rows, kRowUnit);
  parallel_for(context, direct ? kept * blocks : tasks, grain_of(per_task),
               [&](std::int64_t begin, std::int64_t end) {
                 vectorize([&] {
                   double local[kColumns];
                   for (std::int64_t task = begin; task < end; ++task) {
                     const std::int64_t block = task % blocks, outer = task / blocks;
                     const std::int64_t from = block * kColumns, width = std::min(n - from, kColumns);
                     if (!direct) {
                       unit_sum(outer / units, from, width, outer % units, sums + outer * n + from);
                       continue;
                     }
                     unit_sum(outer, from, width, 0, local);
                     const std::int64_t y = plan.kept.at(outer).y;
                     for (std::int64_t j = 0; j < width; ++j) finish(y + (from + j) * y_step, local[j]);
                   }
                 });
               });
  if (direct) return;
  parallel_for(context, kept * n, grain_of(units), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t k = i / n, j = i % n;
      double total = 0;
      for (std::int64_t unit = 0; unit < units; ++unit) total += sums[(k * units + unit) * n + j];
      finish(plan.kept.at(k).y + j * y_step, total);
    }
  });
}

// finish(y offset, sum of f(x, y offset)) for every element of y.
template <class T, class F, class Finish>
void reduce(CpuContext& context, const Tensor& x, const Tensor& y, const F& f, const Finish& finish) {
  using A = Accumulate<T>;
  if (y.numel() == 0) return;
  const T* from = x.data<T>();
  if (x.numel() == 0) {
    for (std::int64_t i = 0; i < y.numel(); ++i) finish(i, 0.0);
    return;
  }
  const ReducePlan plan(x, y);
  if (plan.inner_reduced) {
    sum_rows<A>(context, plan, from, f, finish);
  } else {
    sum_columns<A>(context, plan, from, f, finish);
  }
}

}  // namespace

template <> void sum(CpuContext& context, const Tensor& x, const Tensor& y, double scale, Write write) {
  dispatch_floating(x.dtype(), "sum", [&]<class T>() {
    dispatch_floating(y.dtype(), "sum", [&]<class U>() {
      U* to = y.data<U>();
      const bool add = write == Write::accumulate;
      reduce<T>(
          context, x, y, [](auto value, std::int64_t) { return value; },
          [=](std::int64_t at, double total) {
            using B = Accumulate<U>;
            const B value = B(total * scale);
            to[at] = U(add ? B(to[at]) + value : value);
          });
    });
  });
}

template <>
void squared_deviation(CpuContext& context, const Tensor& x, const Tensor& mean, const Tensor& y,
                       double scale) {
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

template <>
void squared_deviation_backward(CpuContext& context, const Tensor& x, const Tensor& mean, const Tensor& dy,
                                const Tensor& dx, double scale) {
  dispatch_floating(x.dtype(), "var", [&]<class T>() {
    using A = Accumulate<T>;
    const T *values = x.data<T>(), *gradient = dy.data<T>();
    const A* center = mean.data<A>();
    T* to = dx.data<T>();
    const cpu::Walk<4> walk(dx.shape(), {&x, &mean, &dy, &dx});
    const std::int64_t sx = walk.row_stride(0), sm = walk.row_stride(1);
    cpu::for_each_row(context, walk, [=](const auto& offset, std::int64_t n) {
      const T *in = values + offset[0], *dout = gradient + offset[2];
      const A* middle = center + offset[1];
      T* out = to + offset[3];
      for (std::int64_t i = 0; i < n; ++i)
        out[i] = T(A(scale) * A(dout[i * sm]) * (A(in[i * sx]) - middle[i * sm]));
    });
  });
}

template <> std::int64_t count_nonfinite(CpuContext&, const Tensor& x) {
  count_host_sync("count_nonfinite", Site::current());
  return dispatch_floating(x.dtype(), "count_nonfinite", [&]<class T>() {
    const T* values = x.data<T>();
    std::int64_t bad = 0;
    for (std::int64_t i = 0; i < x.numel(); ++i) bad += !std::isfinite(Accumulate<T>(values[i]));
    return bad;
  });
}

}  // namespace athanor::kernels
