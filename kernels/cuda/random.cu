#include "kernels/cuda/context.h"
#include "kernels/cuda/vec.h"
#include "kernels/random.h"
#include "kernels/random_ops.h"

// A thread turns one Philox block (four words, about 80 integer operations) into four elements: what is
// written is 4 elements, nothing is read.

namespace athanor::kernels {
namespace {

constexpr int kThreads = 256;

// f(words, out) makes kElements elements of y from a block of the stream.
template <class T, int kElements, bool kAligned, class F>
__global__ void __launch_bounds__(kThreads) generate(RandomKey key, std::int64_t n, F f, T* y) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t block = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; block * kElements < n;
       block += step) {
    cuda::Vec<T, kElements> out;
    f(philox(key, static_cast<std::uint64_t>(block)), out);
    const std::int64_t at = block * kElements;
    if (at + kElements <= n) {
      cuda::store_vector<kAligned>(y + at, out);
    } else {
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        if (at + i < n) y[at + i] = out[i];
      }
    }
  }
}

template <class T, int kElements, class F>
void generate_all(const CudaContext& context, const char* name, RandomKey key, const Tensor& y, const F& f) {
  const std::int64_t n = y.numel();
  T* out = y.data<T>();
  const unsigned blocks = cuda::blocks_for(context, (n + kElements - 1) / kElements, kThreads);
  const bool aligned = cuda::aligned<kElements>(out);
  const auto kernel = aligned ? generate<T, kElements, true, F> : generate<T, kElements, false, F>;
  cuda::launch(context, {name, blocks, kThreads}, kernel, key, n, f, out);
}

template <class T, class A> struct Uniform {
  A low, width;
  T top;
  __device__ __forceinline__ void operator()(const PhiloxBlock& block, cuda::Vec<T, 4>& out) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const T value = T(std::fma(A(athanor::random_uniform(block.word[i])), width, low));
      out[i] = A(value) > A(top) ? top : value;
    }
  }
};

template <class T, class A> struct Normal {
  A mean, stddev;
  __device__ __forceinline__ void operator()(const PhiloxBlock& block, cuda::Vec<T, 4>& out) const {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const NormalPair pair = random_normals(block.word[i], block.word[i + 1]);
      out[i] = T(std::fma(A(pair.first), stddev, mean));
      out[i + 1] = T(std::fma(A(pair.second), stddev, mean));
    }
  }
};

template <class T> struct Integers {
  std::uint64_t low, bound;
  __device__ __forceinline__ void operator()(const PhiloxBlock& block, cuda::Vec<T, 2>& out) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint64_t word = block.word[2 * i] | (std::uint64_t{block.word[2 * i + 1]} << 32);
      out[i] = convert<T>(static_cast<std::int64_t>(low + random_below(word, bound)));
    }
  }
};

}  // namespace

void random_uniform(CudaContext& context, RandomKey key, double low, double high, Out y) {
  dispatch_floating(y.dtype(), "rand", [&]<class T>() {
    using A = Accumulate<T>;
    generate_all<T, 4>(
        context, "rand", key, y,
        Uniform<T, A>{static_cast<A>(low), static_cast<A>(high - low), largest_below<T>(high)});
  });
}

void random_normal(CudaContext& context, RandomKey key, double mean, double stddev, Out y) {
  dispatch_floating(y.dtype(), "randn", [&]<class T>() {
    using A = Accumulate<T>;
    generate_all<T, 4>(context, "randn", key, y, Normal<T, A>{static_cast<A>(mean), static_cast<A>(stddev)});
  });
}

void random_integers(CudaContext& context, RandomKey key, std::int64_t low, std::int64_t high, Out y) {
  const auto first = static_cast<std::uint64_t>(low), bound = static_cast<std::uint64_t>(high) - first;
  dispatch_any(y.dtype(), [&]<class T>() {
    generate_all<T, 2>(context, "randint", key, y, Integers<T>{first, bound});
  });
}

}  // namespace athanor::kernels
