#include "kernels/index.h"

#include <cstring>

#include "kernels/convert.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/slices.h"
#include "kernels/detail/wide_sums.h"
#include "kernels/dispatch_size.h"

namespace athanor::kernels {
namespace {

// Splits the lines of `shape` along `axis` (all other indices) over the threads, and calls f(offsets of the
// line's first element in each operand). Operands are given by their strides.
template <int N, class F>
void for_each_line(CpuContext& context, Shape shape, int axis, const std::array<Strides, N>& strides,
                   const F& f) {
  const std::int64_t grain = cpu::grain_of(shape[axis], cpu::kGrain / 4);
  shape[axis] = 1;
  cpu::for_each_task<false>(context, shape.numel(), grain, [&](std::int64_t line) {
    std::array<std::int64_t, N> offset{};
    for (int i = shape.rank() - 1; i >= 0; --i) {
      for (int k = 0; k < N; ++k) offset[k] += line % shape[i] * strides[k][i];
      line /= shape[i];
    }
    f(offset);
  });
}

}  // namespace

void check_indices(CpuContext& context, const char* op, const Tensor& index, std::int64_t size) {
  const std::int64_t* at = index.data<std::int64_t>();
  // Threads may not throw: they only test, and this thread then finds the first bad index.
  std::atomic<bool> bad{false};
  cpu::parallel_for(context, index.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    bool any = false;
    for (std::int64_t i = begin; i < end; ++i) {
      any |= static_cast<std::uint64_t>(at[i]) >= static_cast<std::uint64_t>(size);
    }
    if (any) bad.store(true, std::memory_order_relaxed);
  });
  if (!bad.load(std::memory_order_relaxed)) return;
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    ATH_CHECK(at[i] >= 0 && at[i] < size, "{}: indices must be in [0, {}), but element {} is {}", op, size, i,
              at[i]);
  }
}

void index_select(CpuContext& context, const Tensor& x, int axis, const Tensor& index, Out y) {
  const AxisShape in(x.shape(), axis);
  const std::int64_t count = index.numel();
  const std::int64_t* at = index.data<std::int64_t>();
  if (y.numel() == 0) return;
  dispatch_size(x.dtype(), [&]<class T>() {
    const T* from = reinterpret_cast<const T*>(x.raw_data());
    T* to = reinterpret_cast<T*>(y.raw_data());
    cpu::for_each_task<false>(context, in.outer * count, cpu::grain_of(in.inner), [&](std::int64_t row) {
      const T* source = from + (row / count * in.n + at[row % count]) * in.inner;
      if (in.inner == 1) {
        to[row] = *source;
      } else {
        std::memcpy(to + row * in.inner, source, static_cast<std::size_t>(in.inner) * sizeof(T));
      }
    });
  });
}

void index_add(CpuContext& context, const Tensor& dy, int axis, const Tensor& index, Out dx) {
  const AxisShape out(dx.shape(), axis);
  const std::int64_t count = index.numel();
  const std::int64_t* at = index.data<std::int64_t>();
  if (dx.numel() == 0 || count == 0) return;
  dispatch_floating(dx.dtype(), "index_add", [&]<class T>() {
    using A = Accumulate<T>;
    const T* from = dy.data<T>();
    with_wide_sums<T>(context, dx, [&](A* sums) {
      // Threads share the columns, never a sum: values of equal indices are added in order.
      const auto add_columns = [&](std::int64_t begin, std::int64_t end) {
        while (begin < end) {
          const std::int64_t block = begin / out.inner, first = begin % out.inner;
          const std::int64_t columns = std::min(out.inner - first, end - begin);
          cpu::vectorize([&] {
            for (std::int64_t k = 0; k < count; ++k) {
              const T* in = from + (block * count + k) * out.inner + first;
              A* to = sums + (block * out.n + at[k]) * out.inner + first;
              for (std::int64_t i = 0; i < columns; ++i) to[i] += A(in[i]);
            }
          });
          begin += columns;
        }
      };
      cpu::parallel_for(context, out.outer * out.inner, cpu::grain_of(count), add_columns);
    });
  });
}

void gather(CpuContext& context, const Tensor& x, int axis, const Tensor& index, Out y) {
  if (y.numel() == 0) return;
  const std::int64_t* at = index.data<std::int64_t>();
  const std::int64_t length = index.shape()[axis];
  const std::int64_t step = index.strides()[axis], source_step = x.strides()[axis];
  dispatch_size(x.dtype(), [&]<class T>() {
    const T* from = reinterpret_cast<const T*>(x.raw_data());
    T* to = reinterpret_cast<T*>(y.raw_data());
    for_each_line<2>(context, index.shape(), axis, {index.strides(), x.strides()}, [&](const auto& offset) {
      for (std::int64_t i = 0; i < length; ++i) {
        const std::int64_t place = offset[0] + i * step;
        to[place] = from[offset[1] + at[place] * source_step];
      }
    });
  });
}

void scatter_add(CpuContext& context, const Tensor& dy, int axis, const Tensor& index, Out dx) {
  if (dy.numel() == 0) return;
  const std::int64_t* at = index.data<std::int64_t>();
  const std::int64_t length = index.shape()[axis];
  const std::int64_t step = index.strides()[axis], target_step = dx.strides()[axis];
  dispatch_floating(dx.dtype(), "scatter_add", [&]<class T>() {
    using A = Accumulate<T>;
    const T* from = dy.data<T>();
    with_wide_sums<T>(context, dx, [&](A* sums) {
      const auto add_line = [&](const auto& offset) {
        for (std::int64_t i = 0; i < length; ++i) {
          const std::int64_t place = offset[0] + i * step;
          sums[offset[1] + at[place] * target_step] += A(from[place]);
        }
      };
      for_each_line<2>(context, index.shape(), axis, {index.strides(), dx.strides()}, add_line);
    });
  });
}

void where(CpuContext& context, const Tensor& condition, const Tensor& a, const Tensor& b, Out y) {
  const cpu::Walk<4> walk(y.shape(), {&condition, &a, &b, &y});
  const bool* choose = condition.data<bool>();
  const std::int64_t sc = walk.row_stride(0), sa = walk.row_stride(1), sb = walk.row_stride(2);
  dispatch_size(y.dtype(), [&]<class T>() {
    const T* left = reinterpret_cast<const T*>(a.raw_data());
    const T* right = reinterpret_cast<const T*>(b.raw_data());
    T* to = reinterpret_cast<T*>(y.raw_data());
    cpu::for_each_row(context, walk, [&](const auto& offset, std::int64_t n) {
      const bool* c = choose + offset[0];
      const T *pa = left + offset[1], *pb = right + offset[2];
      T* out = to + offset[3];
      if (sc == 1 && sa == 1 && sb == 1) {
        cpu::vectorize([&] {
          for (std::int64_t i = 0; i < n; ++i) out[i] = c[i] ? pa[i] : pb[i];
        });
      } else {
        for (std::int64_t i = 0; i < n; ++i) out[i] = c[i * sc] ? pa[i * sa] : pb[i * sb];
      }
    });
  });
}

}  // namespace athanor::kernels
