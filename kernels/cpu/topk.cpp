#include "kernels/topk.h"

#include <algorithm>
#include <numeric>

#include "kernels/cpu/context.h"
#include "kernels/cpu/parallel.h"
#include "kernels/detail/axis_shape.h"
#include "kernels/numbers.h"
#include "kernels/scratch.h"

namespace athanor::kernels {

void topk(CpuContext& context, const Tensor& x, int axis, bool largest, Out values, Out index) {
  const AxisShape in(x.shape(), axis);
  const std::int64_t k = values.shape()[axis], slices = in.outer * in.inner;
  if (slices == 0) return;
  const std::int64_t workers =
      std::clamp<std::int64_t>(x.numel() / cpu::kGrain, 1, std::min<std::int64_t>(slices, context.threads()));
  const Scratch scratch = context.scratch(static_cast<std::size_t>(workers * in.n) * sizeof(std::int64_t));
  auto* const orders = scratch.as<std::int64_t>();
  dispatch_number(x.dtype(), "topk", [&]<class T>() {
    using A = ComputeType<T>;
    const T* from = x.data<T>();
    T* value_to = values.data<T>();
    std::int64_t* index_to = index.data<std::int64_t>();
    const auto run = [&](std::int64_t slice, std::int64_t* order) {
      const std::int64_t outer = slice / in.inner, column = slice % in.inner;
      const T* elements = from + outer * in.n * in.inner + column;
      const auto ranked = [&](std::int64_t i) { return Ranked<A>{A(elements[i * in.inner]), i}; };
      std::iota(order, order + in.n, std::int64_t{0});
      std::partial_sort(order, order + k, order + in.n, [&](std::int64_t a, std::int64_t b) {
        return comes_before(ranked(a), ranked(b), largest);
      });
      for (std::int64_t j = 0; j < k; ++j) {
        const std::int64_t at = (outer * k + j) * in.inner + column;
        value_to[at] = elements[order[j] * in.inner];
        index_to[at] = order[j];
      }
    };
    cpu::parallel_for(context, workers, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t worker = begin; worker < end; ++worker) {
        for (std::int64_t slice = worker; slice < slices; slice += workers)
          run(slice, orders + worker * in.n);
      }
    });
  });
}

}  // namespace athanor::kernels
