#include "kernels/dropout.h"

#include "kernels/cpu/iterate.h"
#include "kernels/cpu/parallel.h"
#include "tensor/philox.h"

namespace athanor::kernels {

template <> void dropout(CpuContext& context, float p, const RandomOp& op, const Tensor& x, const Tensor& y) {
  constexpr std::int64_t kBlocks = 64;  // per batch, so that the rounds vectorise across counters
  const StepState& step = *context.step();
  const RandomKey key{step.seed,
                      random_stream(RandomPurpose::dropout, static_cast<std::uint64_t>(step.applied_steps),
                                    static_cast<std::uint64_t>(op.number))};
  const std::uint32_t threshold = drop_threshold(p);
  const std::int64_t n = x.numel();
  const std::int64_t before = op.first % 4;  // words of the first block before this tensor's
  dispatch_floating(x.dtype(), "dropout", [&]<class T>() {
    using A = Accumulate<T>;
    const A scale = p < 1 ? A(1) / (A(1) - A(p)) : A(0);
    const T* in = x.data<T>();
    T* out = y.data<T>();
    cpu::parallel_for(
        context, (before + n + 3) / 4, cpu::kGrain / 16, [&](std::int64_t begin, std::int64_t end) {
          std::uint32_t words[4 * kBlocks];
          for (std::int64_t first = begin; first < end; first += kBlocks) {
            const std::int64_t count = std::min(kBlocks, end - first), at = 4 * first - before;
            const std::int64_t skipped = std::max<std::int64_t>(-at, 0), stop = std::min(4 * count, n - at);
            cpu::vectorize_if<cpu::kFastType<T>>([&] {
              for (std::int64_t b = 0; b < count; ++b) {
                const PhiloxBlock block = philox(key, static_cast<std::uint64_t>(op.first / 4 + first + b));
                for (std::int64_t k = 0; k < 4; ++k) words[4 * b + k] = block.word[k];
              }
            });
            cpu::vectorize_if<cpu::kFastType<T>>([&] {
              for (std::int64_t i = skipped; i < stop; ++i) {
                const T kept = T(A(in[at + i]) * scale);
                out[at + i] = words[i] >= threshold ? kept : T(A(0));
              }
            });
          }
        });
    if (p >= 1) {  // the threshold would keep one word in 2^32
      cpu::parallel_for(context, n, cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
        std::fill(out + begin, out + end, T(A(0)));
      });
    }
  });
}

}  // namespace athanor::kernels
