#include "kernels/hash.h"

#include <atomic>
#include <bit>

#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace athanor::kernels {

std::uint64_t hash_elements(CpuContext& context, const Tensor& x, std::uint64_t first_index) {
  const float* values = x.data<float>();
  std::atomic<std::uint64_t> total = 0;  // a sum modulo 2^64 is the same in any order
  cpu::parallel_for(context, x.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::uint64_t sum = 0;
    cpu::vectorize([&] {
      std::uint64_t partial = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        partial += hash_element(first_index + static_cast<std::uint64_t>(i),
                                std::bit_cast<std::uint32_t>(values[i]));
      }
      sum = partial;
    });
    total.fetch_add(sum, std::memory_order_relaxed);
  });
  return total.load();
}

}  // namespace athanor::kernels
