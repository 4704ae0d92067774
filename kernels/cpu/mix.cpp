#include "kernels/mix.h"

#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"

namespace athanor::kernels {
namespace {

template <class T>
void exchange(const Mixing& how, std::int64_t width, std::int64_t channels, T* one, T* other) {
  for (std::int64_t y = how.top; y < how.top + how.height; ++y) {
    const std::int64_t at = (y * width + how.left) * channels;
    std::swap_ranges(one + at, one + at + how.width * channels, other + at);
  }
}

}  // namespace

void mix(CpuContext& context, const Mixing& how, Out images, Out labels, const Tensor& partner_labels) {
  const std::int64_t count = images.shape()[0], width = images.shape()[2], channels = images.shape()[3];
  const std::int64_t numel = images.shape()[1] * width * channels;
  dispatch_floating(images.dtype(), "mix", [&]<class T>() {
    using A = Accumulate<T>;
    const A own = A(how.share), rest = A(1 - how.share);
    cpu::for_each_task<true>(context, count / 2, cpu::grain_of(numel), [&](std::int64_t n) {
      T* const one = images.data<T>() + n * numel;
      T* const other = images.data<T>() + (count - 1 - n) * numel;
      if (how.cuts) {
        exchange(how, width, channels, one, other);
      } else {
        for (std::int64_t i = 0; i < numel; ++i) mix_pair(one[i], other[i], own, rest);
      }
    });
  });
  const std::int64_t* const from = labels.data<std::int64_t>();
  std::reverse_copy(from, from + count, partner_labels.data<std::int64_t>());
}

}  // namespace athanor::kernels
