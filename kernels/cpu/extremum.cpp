#include "kernels/extremum.h"

#include "kernels/cpu/context.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/slices.h"

namespace athanor::kernels {
namespace {

using cpu::kSlices;

template <class A> bool wins(A value, A best) {
  return (value > best) | ((value != value) & (best == best));
}

// First index of the largest of n adjacent elements: the maximum in lanes, then the first chunk with it.
template <class A, class T> std::int64_t first_of_largest(const T* x, std::int64_t n, A& largest) {
  largest = cpu::max_lanes<A>(n, [&](std::int64_t i) { return A(x[i]); });
  const A wanted = largest;
  const bool nan = wanted != wanted;
  const auto is_it = [&](std::int64_t i) { return nan ? A(x[i]) != A(x[i]) : A(x[i]) == wanted; };
  std::int64_t at = 0;
  for (; at + 64 <= n; at += 64) {
    int found = 0;
    for (std::int64_t i = 0; i < 64; ++i) found |= is_it(at + i);
    if (found) break;
  }
  while (!is_it(at)) ++at;
  return at;
}

// The largest value and its first index for each of `width` adjacent columns of n rows.
template <class A, class T>
void largest_of_columns(const T* x, std::int64_t n, std::int64_t inner, std::int64_t width, A* largest,
                        std::int64_t* index) {
  for (std::int64_t j = 0; j < width; ++j) {
    largest[j] = A(x[j]);
    index[j] = 0;
  }
  for (std::int64_t r = 1; r < n; ++r) {
    const T* row = x + r * inner;
    for (std::int64_t j = 0; j < width; ++j) {
      const A value = A(row[j]);
      const bool better = wins(value, largest[j]);
      largest[j] = better ? value : largest[j];
      index[j] = better ? r : index[j];
    }
  }
}

}  // namespace

void max(CpuContext& context, const Tensor& x, int axis, Out values, Out index) {
  dispatch_floating(x.dtype(), "max", [&]<class T>() {
    using A = Accumulate<T>;
    const AxisShape shape(x.shape(), axis);
    const T* from = x.data<T>();
    T* value_to = values.defined() ? values.data<T>() : nullptr;
    std::int64_t* index_to = index.defined() ? index.data<std::int64_t>() : nullptr;
    cpu::for_each_slice<T>(context, shape, [=](std::int64_t at, std::int64_t to, std::int64_t width) {
      A largest[kSlices];
      std::int64_t found[kSlices];
      const T* in = from + at;
      if (shape.inner == 1) {
        found[0] = first_of_largest(in, shape.n, largest[0]);
      } else {
        largest_of_columns(in, shape.n, shape.inner, width, largest, found);
      }
      for (std::int64_t j = 0; j < width; ++j) {
        if (value_to) value_to[to + j] = T(largest[j]);
        if (index_to) index_to[to + j] = found[j];
      }
    });
  });
}

void max_backward(CpuContext& context, const Tensor& index, const Tensor& dy, int axis, Out dx) {
  dispatch_floating(dx.dtype(), "max", [&]<class T>() {
    const AxisShape shape(dx.shape(), axis);
    const std::int64_t* at = index.data<std::int64_t>();
    const T* gradient = dy.data<T>();
    T* to = dx.data<T>();
    const std::int64_t slice = shape.n * shape.inner;
    cpu::parallel_for(context, shape.outer, cpu::grain_of(slice), [&](std::int64_t begin, std::int64_t end) {
      std::fill(to + begin * slice, to + end * slice, T());
      for (std::int64_t outer = begin; outer < end; ++outer) {
        for (std::int64_t j = 0; j < shape.inner; ++j) {
          const std::int64_t k = outer * shape.inner + j;
          to[outer * slice + at[k] * shape.inner + j] = gradient[k];
        }
      }
    });
  });
}

}  // namespace athanor::kernels
