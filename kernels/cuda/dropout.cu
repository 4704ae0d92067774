#include <algorithm>

#include "kernels/cuda/context.h"
#include "kernels/cuda/vec.h"
#include "kernels/dropout.h"
#include "tensor/philox.h"

namespace athanor::kernels {
namespace {

constexpr int kThreads = 256;

struct Drop {
  const StepState* step;  // on the device
  std::uint64_t op, first;
  std::uint32_t threshold;
  bool all;  // the threshold lets one word in 2^32 pass

  __device__ __forceinline__ RandomKey key() const {
    return {step->seed,
            random_stream(RandomPurpose::dropout, static_cast<std::uint64_t>(step->applied_steps), op)};
  }
  /// Words i .. i + 3 of the tensor, for i a multiple of 4: of one block, or of two where it begins within
  /// one.
  __device__ __forceinline__ PhiloxBlock words(const RandomKey& key, std::uint64_t i) const {
    PhiloxBlock found = philox(key, (first + i) / 4);
    const auto others = static_cast<unsigned>(first % 4);
    if (others == 0) return found;  // the same for all threads
    const PhiloxBlock next = philox(key, (first + i) / 4 + 1);
#pragma unroll
    for (unsigned shifts = 1; shifts < 4; ++shifts) {
      if (shifts > others) break;
      found.word[0] = found.word[1];
      found.word[1] = found.word[2];
      found.word[2] = found.word[3];
      found.word[3] = next.word[shifts - 1];
    }
    return found;
  }
  __device__ __forceinline__ bool keeps(std::uint32_t word) const {
    return word >= threshold && !all;
  }
};

/// W elements a thread from W / 4 Philox blocks: one read and one write of an element, about 20 integer
/// operations.
template <class T, class A, int W, bool kAligned>
__global__ void __launch_bounds__(kThreads) drop(Drop mask, A scale, const T* x, T* y, std::int64_t n) {
  static_assert(W % 4 == 0);
  const RandomKey key = mask.key();
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * W;
  for (std::int64_t at = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; at < n; at += step) {
    const bool whole = at + W <= n;
    cuda::Vec<T, W> value;
    if (whole) {
      value = cuda::load_vector<kAligned, W>(x + at);
    } else {
#pragma unroll
      for (int i = 0; i < W; ++i) value[i] = at + i < n ? x[at + i] : T(A(0));
    }
#pragma unroll
    for (int i = 0; i < W; i += 4) {
      const PhiloxBlock random = mask.words(key, static_cast<std::uint64_t>(at + i));
#pragma unroll
      for (int k = 0; k < 4; ++k)
        value[i + k] = mask.keeps(random.word[k]) ? T(A(value[i + k]) * scale) : T(A(0));
    }
    if (whole) {
      cuda::store_vector<kAligned>(y + at, value);
    } else {
#pragma unroll
      for (int i = 0; i < W; ++i) {
        if (at + i < n) y[at + i] = value[i];
      }
    }
  }
}

}  // namespace

void dropout(CudaContext& context, float p, const RandomOp& op, const Tensor& x, Out y) {
  const Drop mask{context.step(), static_cast<std::uint64_t>(op.number), static_cast<std::uint64_t>(op.first),
                  drop_threshold(p), p >= 1};
  const std::int64_t n = x.numel();
  dispatch_floating(x.dtype(), "dropout", [&]<class T>() {
    using A = Accumulate<T>;
    constexpr int W = std::max(4, cuda::kVec<T>);
    const A scale = p < 1 ? A(1) / (A(1) - A(p)) : A(0);
    const T* in = x.data<T>();
    T* out = y.data<T>();
    const auto kernel =
        cuda::aligned<W>(in, static_cast<const T*>(out)) ? drop<T, A, W, true> : drop<T, A, W, false>;
    cuda::launch(context, {"dropout", cuda::blocks_for(context, (n + W - 1) / W, kThreads), kThreads}, kernel,
                 mask, scale, in, out, n);
  });
}

}  // namespace athanor::kernels
