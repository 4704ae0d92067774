#include "bench/support/bench.h"
#include "kernels/cpu/context.h"
#include "kernels/elementwise.h"

// The same sum of two vectors written three ways: element by element through the Tensor handle, in a loop
// over raw pointers, and as one kernel.

namespace athanor::bench {
namespace {

void through_handle(const Tensor& a, const Tensor& b, const Tensor& y) {
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const double sum = a.view_as_strided({}, {}, i).item() + b.view_as_strided({}, {}, i).item();
    y.data<float>()[i] = static_cast<float>(sum);
  }
}

void over_pointers(const Tensor& a, const Tensor& b, const Tensor& y) {
  const float *left = a.data<float>(), *right = b.data<float>();
  float* out = y.data<float>();
  for (std::int64_t i = 0; i < y.numel(); ++i) out[i] = left[i] + right[i];
}

void one_kernel(const Tensor& a, const Tensor& b, const Tensor& y) {
  kernels::binary_forward<kernels::Add>(cpu_context(), a, b, y);
}

template <class F> void add_way(const char* impl, std::int64_t n, const F& f) {
  add({"add", "fwd", DType::f32, std::to_string(n), impl}, {.bytes = 12.0 * static_cast<double>(n)}, [=] {
    const Tensor a = filled({n}, DType::f32), b = filled({n}, DType::f32, -1, 1, 2), y = empty_like(a);
    f(a, b, y);
    std::vector<double> expected = a.to_vector();
    const std::vector<double> right = b.to_vector();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += right[i];
    return Prepared{[=] { f(a, b, y); }, max_error(y, expected), epsilon_of(DType::f32)};
  });
}

}  // namespace

void register_all() {
  for (const std::int64_t n : {1 << 10, 1 << 16, 1 << 20}) {
    add_way("item", n, through_handle);
    add_way("pointer", n, over_pointers);
    add_way("kernel", n, one_kernel);
  }
}

}  // namespace athanor::bench
