#include "simt/async_copy.h"
#include "tests/simt/tensor_kernels.h"

namespace simt::test {
namespace {

// ---- cp.async

// y = x with each tile of 64 floats reversed, by three buffers: two tiles are on their way while one is read.
__global__ void reverse_tiles_kernel(int n, const float* x, float* y) {
  __shared__ __align__(16) float tiles[3][64];
  const int count = (n + 63) / 64, thread = static_cast<int>(threadIdx.x);
  const auto fetch = [&](int tile) {
    if (tile < count && thread < 16) {
      const int first = tile * 64 + thread * 4, left = n - first;
      cp_async<16>(&tiles[tile % 3][thread * 4], x + (left > 0 ? first : 0),
                   left >= 4  ? 16
                   : left > 0 ? left * 4
                              : 0);
    }
    cp_async_commit();
  };
  fetch(0);
  fetch(1);
  for (int tile = 0; tile < count; ++tile) {
    cp_async_wait<1>();
    __syncthreads();
    fetch(tile + 2);
    const int at = tile * 64 + thread;
    if (at < n) y[at] = tiles[tile % 3][63 - thread];
  }
}

__global__ void copy_words_kernel(const float* x, float* y) {
  __shared__ __align__(16) float to[32 + 64 + 128];
  const unsigned i = threadIdx.x;
  cp_async<4>(to + i, x + i);
  cp_async<8>(to + 32 + 2 * i, x + 32 + 2 * i);
  cp_async<16, true>(to + 96 + 4 * i, x + 96 + 4 * i);
  cp_async_wait_all();
  __syncwarp();
  for (unsigned k = i; k < 224; k += 32) y[k] = to[k ^ 1];
}

__global__ void cp_async_no_wait_kernel(const float* x, float* out) {
  __shared__ float to[32];
  cp_async<4>(to + threadIdx.x, x + threadIdx.x);  // line: cp_async_no_wait_copy
  cp_async_commit();
  __syncthreads();
  out[threadIdx.x] = to[threadIdx.x];  // line: cp_async_no_wait
}

__global__ void cp_async_no_commit_kernel(const float* x, float* out) {
  __shared__ float to[32];
  cp_async<4>(to + threadIdx.x, x + threadIdx.x);  // line: cp_async_no_commit_copy
  cp_async_wait<0>();
  out[threadIdx.x] = to[threadIdx.x];  // line: cp_async_no_commit
}

__global__ void cp_async_one_group_too_few_kernel(const float* x, float* out) {
  __shared__ float to[64];
  for (unsigned i = threadIdx.x; i < 64; i += 32) {
    cp_async<4>(to + i, x + i);  // line: cp_async_one_group_too_few_copy
    cp_async_commit();
  }
  cp_async_wait<1>();
  out[threadIdx.x] = to[threadIdx.x];
  out[32 + threadIdx.x] = to[32 + threadIdx.x];  // line: cp_async_one_group_too_few
}

__global__ void cp_async_no_barrier_kernel(const float* x, float* out) {
  __shared__ float to[64];
  cp_async<4>(to + threadIdx.x, x + threadIdx.x);  // line: cp_async_no_barrier_copy
  cp_async_wait_all();
  out[threadIdx.x] = to[63 - threadIdx.x];  // line: cp_async_no_barrier
}

__global__ void cp_async_over_reader_kernel(const float* x, float* out) {
  __shared__ float to[64];
  to[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = to[63 - threadIdx.x];         // line: cp_async_over_reader_read
  cp_async<4>(to + threadIdx.x, x + threadIdx.x);  // line: cp_async_over_reader
  cp_async_wait_all();
}

__global__ void cp_async_source_changes_kernel(float* x) {
  __shared__ float to[32];
  cp_async<4>(to + threadIdx.x, x + threadIdx.x);  // line: cp_async_source_changes_copy
  x[threadIdx.x] = 0;                              // line: cp_async_source_changes
  cp_async_wait_all();
  x[threadIdx.x + 32] = to[threadIdx.x];
}

__global__ void cp_async_misaligned_kernel(const float* x, float* out) {
  __shared__ __align__(16) float to[132];
  cp_async<16>(to + 4 * threadIdx.x, x + (threadIdx.x == 3 ? 2 : 0));  // line: cp_async_misaligned
  cp_async_wait_all();
  out[threadIdx.x] = to[4 * threadIdx.x];
}

__global__ void cp_async_from_shared_kernel(float* out) {
  __shared__ float to[32];
  auto* const from = dynamic_shared<float>();
  from[threadIdx.x] = 1;
  cp_async<4>(to + threadIdx.x, from + threadIdx.x);  // line: cp_async_from_shared
  cp_async_wait_all();
  out[threadIdx.x] = to[threadIdx.x];
}

__global__ void cp_async_too_long_kernel(const float* x, float* out) {
  __shared__ float to[32];
  cp_async<4>(to + threadIdx.x, x + threadIdx.x, 8);  // line: cp_async_too_long
  cp_async_wait_all();
  out[threadIdx.x] = to[threadIdx.x];
}

__global__ void cp_async_beyond_kernel(int offset, const float* x, float* out) {
  __shared__ float to[32];
  cp_async<4>(to + threadIdx.x, x + static_cast<int>(threadIdx.x) + offset);  // line: cp_async_beyond
  cp_async_wait_all();
  out[threadIdx.x] = to[threadIdx.x];
}

template <class... P>
cudaError_t run(const char* name, void (*kernel)(P...), unsigned threads, P... parameters) {
  return launch(nullptr, {name, 1, threads, 1024}, kernel, parameters...);
}

}  // namespace

cudaError_t reverse_tiles(int n, const float* x, float* y) {
  return run("reverse_tiles", reverse_tiles_kernel, 64, n, x, y);
}
cudaError_t copy_words(const float* x, float* y) {
  return run("copy_words", copy_words_kernel, 32, x, y);
}
cudaError_t cp_async_beyond(int offset, const float* x, float* out) {
  return run("cp_async_beyond", cp_async_beyond_kernel, 32, offset, x, out);
}
cudaError_t cp_async_source_changes(float* out) {
  return run("cp_async_source_changes", cp_async_source_changes_kernel, 32, out);
}
cudaError_t cp_async_from_shared(float* out) {
  return run("cp_async_from_shared", cp_async_from_shared_kernel, 32, out);
}
// From the first half of `out`, which has 128 floats, to the second.
#define PLANTED(name, threads)                                                           \
  cudaError_t name(float* out) {                                                         \
    return run(#name, name##_kernel, threads, static_cast<const float*>(out), out + 64); \
  }
SIMT_COPY_BUGS(PLANTED)
#undef PLANTED

}  // namespace simt::test
