#include "trainer/profile/roof.h"

#include <algorithm>
#include <chrono>

#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "autograd/matmul.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

template <class F> double best_s(const F& f) {
  double best = 1e9;
  for (int i = 0; i < 6; ++i) {
    const auto began = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  return best;
}

}  // namespace

Roof measure_roof(const TensorOptions& options) {
  if (!options.device.is_cpu()) return {};
  Roof roof;
  try {
    const NoGrad no_grad;
    constexpr std::int64_t kMany = std::int64_t{12} << 20, kSide = 512;
    const std::int64_t count = kMany / static_cast<std::int64_t>(size_of(options.dtype));
    const Tensor a = Tensor::zeros({count}, options), b = Tensor::zeros({count}, options);
    const Tensor left = Tensor::zeros({kSide, kSide}, options),
                 right = Tensor::zeros({kSide, kSide}, options);
    roof = {3.0 * kMany / best_s([&] { (void)(a + b); }),
            2.0 * kSide * kSide * kSide / best_s([&] { (void)matmul(left, right); })};
  } catch (const OutOfMemoryError&) {
  }
  allocator_of(options.device).trim();
  allocator_of(options.device).reset_peak();  // the peak is for the run
  return roof;
}

}  // namespace athanor
