#include "kernels/dropout.h"

#include "kernels/cpu/context.h"
#include "kernels/cpu/random_words.h"

namespace athanor::kernels {

void dropout(CpuContext& context, float p, const RandomOp& op, const Tensor& x, Out y) {
  const StepState& step = *context.step();
  const RandomKey key{step.seed,
                      random_stream(RandomPurpose::dropout, static_cast<std::uint64_t>(step.applied_steps),
                                    static_cast<std::uint64_t>(op.number))};
  const std::uint32_t threshold = drop_threshold(p);
  const std::int64_t n = x.numel();
  dispatch_floating(x.dtype(), "dropout", [&]<class T>() {
    using A = Accumulate<T>;
    const A scale = p < 1 ? A(1) / (A(1) - A(p)) : A(0);
    const T* in = x.data<T>();
    T* out = y.data<T>();
    const auto drop = [&](std::int64_t at, const std::uint32_t* words, std::int64_t begin, std::int64_t end) {
      cpu::vectorize_if<cpu::kFastType<T>>([&] {
        for (std::int64_t i = begin; i < end; ++i) {
          const T scaled = T(A(in[at + i]) * scale);
          out[at + i] = words[i] >= threshold ? scaled : T(A(0));
        }
      });
    };
    cpu::for_each_words(context, key, op.first, n, drop);
    if (p >= 1) {  // the threshold would keep one word in 2^32
      cpu::parallel_for(context, n, cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
        std::fill(out + begin, out + end, T(A(0)));
      });
    }
  });
}

}  // namespace athanor::kernels
