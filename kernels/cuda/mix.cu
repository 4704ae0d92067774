#include <algorithm>

#include "kernels/cuda/context.h"
#include "kernels/cuda/launch.h"
#include "kernels/mix.h"

namespace athanor::kernels {
namespace {

constexpr int kThreads = 256;

struct Batch {
  std::int64_t count, numel;     // images, and elements of one
  std::int64_t row, first;       // elements of an image's row, and where the rectangle begins
  std::int64_t across, changed;  // elements of a row of the rectangle, and of all of it
};

/// A thread for each pair of elements, and for each label.
template <class T, class A, bool Cuts>
__global__ void __launch_bounds__(kThreads)
    mix_pairs(Batch batch, A own, A rest, T* images, const std::int64_t* labels, std::int64_t* partners) {
  const std::int64_t start = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = start; i < batch.count; i += step) partners[i] = labels[batch.count - 1 - i];
  for (std::int64_t i = start; i < batch.count / 2 * batch.changed; i += step) {
    const std::int64_t n = i / batch.changed, k = i % batch.changed;
    const std::int64_t at = Cuts ? batch.first + k / batch.across * batch.row + k % batch.across : k;
    T& one = images[n * batch.numel + at];
    T& other = images[(batch.count - 1 - n) * batch.numel + at];
    if constexpr (Cuts) {
      const T kept = one;
      one = other;
      other = kept;
    } else {
      mix_pair(one, other, own, rest);
    }
  }
}

}  // namespace

void mix(CudaContext& context, const Mixing& how, Out images, Out labels, const Tensor& partner_labels) {
  if (images.numel() == 0) return;
  const std::int64_t channels = images.shape()[3], row = images.shape()[2] * channels;
  Batch batch{images.shape()[0], images.shape()[1] * row, row, 0, row, images.shape()[1] * row};
  if (how.cuts) {
    batch.first = how.top * row + how.left * channels;
    batch.across = how.width * channels;
    batch.changed = how.height * batch.across;
  }
  dispatch_floating(images.dtype(), "mix", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t work = std::max(batch.count / 2 * batch.changed, batch.count);
    cuda::launch(context, {"mix", cuda::blocks_for(context, work, kThreads), kThreads},
                 how.cuts ? mix_pairs<T, A, true> : mix_pairs<T, A, false>, batch, A(how.share),
                 A(1 - how.share), images.data<T>(), labels.data<std::int64_t>(),
                 partner_labels.data<std::int64_t>());
  });
}

}  // namespace athanor::kernels
