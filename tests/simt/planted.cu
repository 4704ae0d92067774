#include <vector>

#include "tests/simt/kernels.h"

// One bug in each kernel. A line that a report must name is marked with what it is called in the tests.

namespace simt::test {
namespace {

__global__ void divergent_barrier_kernel(float* out) {
  if (threadIdx.x < 40) {
    out[threadIdx.x] = 1;
    __syncthreads();  // line: divergent_barrier_then
  } else {
    out[threadIdx.x] = 2;
    __syncthreads();  // line: divergent_barrier_else
  }
}

__global__ void early_return_kernel(float* out) {
  if (threadIdx.x >= 50) return;
  __syncthreads();  // line: early_return
  out[threadIdx.x] = 1;
}

__global__ void wrong_mask_kernel(float* out) {
  float v = static_cast<float>(threadIdx.x);
  if (threadIdx.x < 16) v += __shfl_xor_sync(~0u, v, 1);  // line: wrong_mask
  out[threadIdx.x] = v;
}

__global__ void mask_without_self_kernel(float* out) {
  const float v = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = __shfl_sync(0x7fffffffu, v, 0);  // line: mask_without_self
}

__global__ void lane_outside_mask_kernel(float* out) {
  const float v = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = v;
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, v, 20);  // line: lane_outside_mask
}

__global__ void different_collectives_kernel(float* out) {
  float v = static_cast<float>(threadIdx.x);
  if (threadIdx.x % 2 == 0) {
    v = __shfl_xor_sync(~0u, v, 1);  // line: different_collectives_even
  } else {
    v = __shfl_down_sync(~0u, v, 1);  // line: different_collectives_odd
  }
  out[threadIdx.x] = v;
}

__global__ void uninitialised_dynamic_kernel(float* out) {
  float* shared = static_cast<float*>(dynamic_shared_memory());
  if (threadIdx.x != 9) shared[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x];  // line: uninitialised_dynamic
}

// Half of a warp waits for the block, the other half for all of the warp.
__global__ void barrier_and_collective_kernel(float* out) {
  if (threadIdx.x < 16) {
    __syncthreads();  // line: barrier_and_collective_barrier
  } else {
    out[threadIdx.x] = __shfl_xor_sync(~0u, 1.0f, 1);  // line: barrier_and_collective_shuffle
  }
}

// CUDA waits for lanes that have not left. Here a mask names those who come.
__global__ void mask_of_the_gone_kernel(float* out) {
  if (threadIdx.x >= 16) return;
  out[threadIdx.x] = 1;
  __syncwarp();  // line: mask_of_the_gone
}

// What only the race build sees.

__global__ void uninitialised_static_kernel(float* out) {
  __shared__ float values[64];
  if (threadIdx.x != 9) values[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];  // line: uninitialised_static
}

__global__ void missing_barrier_kernel(float* out) {
  __shared__ float values[64];
  values[threadIdx.x] = 1;                      // line: missing_barrier_write
  out[threadIdx.x] = values[63 - threadIdx.x];  // line: missing_barrier_read
}

__device__ float sum_of_two_warps(float v) {
  __shared__ float partial[2];
  for (int bits = 16; bits > 0; bits >>= 1) v += __shfl_xor_sync(~0u, v, bits);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;  // line: missing_second_barrier_write
  __syncthreads();
  return partial[0] + partial[1];  // line: missing_second_barrier_read
}
// The second call writes what a warp of the first may still read; no order of whole threads shows it.
__global__ void missing_second_barrier_kernel(float* out) {
  const float first = sum_of_two_warps(1), second = sum_of_two_warps(2);
  out[threadIdx.x] = first + second;
}

// Both halves of the block come to the barrier of the same line, but each from a call of its own.
__device__ __forceinline__ float shared_sum(float v) {
  __shared__ float total;
  if (threadIdx.x % 64 == 0) total = 0;
  __syncthreads();  // line: barrier_in_helper
  return total + v;
}
__global__ void barrier_in_helper_kernel(float* out) {
  if (threadIdx.x < 40) {
    out[threadIdx.x] = shared_sum(1);  // line: barrier_in_helper_then
  } else {
    out[threadIdx.x] = shared_sum(2);  // line: barrier_in_helper_else
  }
}

__attribute__((noinline)) __device__ void wait_for_block(float* value) {
  *value += 1;
  __syncthreads();  // line: barrier_in_function
}
__global__ void barrier_in_function_kernel(float* out) {
  if (threadIdx.x < 40) {
    wait_for_block(out + threadIdx.x);  // line: barrier_in_function_then
  } else {
    wait_for_block(out + threadIdx.x);  // line: barrier_in_function_else
  }
}

__device__ __forceinline__ float with_neighbour(float v) {
  return v + __shfl_xor_sync(~0u, v, 1);  // line: shuffle_in_helper
}
__global__ void shuffle_in_helper_kernel(float* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = with_neighbour(1);  // line: shuffle_in_helper_then
  } else {
    out[threadIdx.x] = with_neighbour(2);  // line: shuffle_in_helper_else
  }
}

__global__ void missing_syncwarp_kernel(float* out) {
  __shared__ float values[64];
  values[threadIdx.x] = 1;
  out[threadIdx.x] = values[threadIdx.x ^ 1];  // line: missing_syncwarp
}

// Shuffles and votes bring lanes together, but order no memory.
__global__ void shuffle_is_no_barrier_kernel(float* out) {
  __shared__ float values[64];
  float v = static_cast<float>(threadIdx.x);
  values[threadIdx.x] = v;  // line: shuffle_is_no_barrier_write
  v = __shfl_xor_sync(~0u, v, 1);
  out[threadIdx.x] = v + values[threadIdx.x ^ 1];  // line: shuffle_is_no_barrier_read
}

__global__ void vote_is_no_barrier_kernel(float* out) {
  __shared__ float values[64];
  values[threadIdx.x] = 1;  // line: vote_is_no_barrier_write
  const bool any = __any_sync(~0u, threadIdx.x == 3) != 0;
  out[threadIdx.x] = any ? values[threadIdx.x ^ 1] : 0.0f;  // line: vote_is_no_barrier_read
}

__global__ void syncwarp_across_warps_kernel(float* out) {
  __shared__ float values[64];
  values[threadIdx.x] = 1;
  __syncwarp();
  out[threadIdx.x] = values[threadIdx.x ^ 32];  // line: syncwarp_across_warps
}

__global__ void partial_mask_kernel(float* out) {
  __shared__ float values[32];
  values[threadIdx.x] = 1;
  __syncwarp(threadIdx.x < 16 ? 0xffffu : 0xffff0000u);
  out[threadIdx.x] = values[threadIdx.x ^ 16];  // line: partial_mask
}

__global__ void plain_add_kernel(float* out) {
  out[0] += 1;  // line: plain_add
}

__global__ void two_blocks_one_cell_kernel(float* out) {
  if (threadIdx.x == 5) out[7] = static_cast<float>(blockIdx.x);  // line: two_blocks_one_cell
}

__global__ void atomic_and_plain_kernel(float* out) {
  if (threadIdx.x == 0) {
    out[1] = 0;  // line: atomic_and_plain_write
  } else {
    atomicAdd(out + 1, 1.0f);  // line: atomic_and_plain_add
  }
}

__device__ [[gnu::used]] float last_block[2];  // or the compiler leaves out what nobody reads

__global__ void blocks_one_variable_kernel(float* out) {
  if (threadIdx.x == 5) last_block[gridDim.z - 1] = out[0];  // line: blocks_one_variable
}

struct Table {
  const float* values;
};
__global__ void memory_of_the_host_kernel(Table table, float* out) {
  out[threadIdx.x] = table.values[threadIdx.x];  // line: memory_of_the_host
}

// The block before has left its values behind, where blocks run one after the other.
__global__ void left_by_another_block_kernel(float* out) {
  __shared__ float values[64];
  if (blockIdx.x == 0 || threadIdx.x != 9) values[threadIdx.x] = 1;
  __syncthreads();
  out[64 * blockIdx.x + threadIdx.x] = values[threadIdx.x];  // line: left_by_another_block
}

__global__ void dynamic_race_kernel(float* out) {
  float* values = static_cast<float*>(dynamic_shared_memory());
  values[threadIdx.x] = 1;                      // line: dynamic_race_write
  out[threadIdx.x] = values[63 - threadIdx.x];  // line: dynamic_race_read
}

__global__ void two_writers_kernel(float* out) {
  __shared__ float last;
  last = static_cast<float>(threadIdx.x);  // line: two_writers
  __syncthreads();
  out[threadIdx.x] = last;
}

__global__ void bytes_race_kernel(float* out) {
  __shared__ unsigned char values[64];
  values[threadIdx.x] = 1;                     // line: bytes_race_write
  out[threadIdx.x] = values[threadIdx.x ^ 1];  // line: bytes_race_read
}

__global__ void shared_atomic_kernel(float* out) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0;  // line: shared_atomic_write
  atomicAdd(&sum, 1.0f);          // line: shared_atomic_add
  __syncthreads();
  out[threadIdx.x] = sum;
}

__global__ void warps_of_a_block_kernel(float* out) {
  out[threadIdx.x] = 1;                           // line: warps_of_a_block_write
  out[64 + threadIdx.x] = out[threadIdx.x ^ 32];  // line: warps_of_a_block_read
}

// What only the build with AddressSanitizer and UndefinedBehaviorSanitizer sees.

__global__ void beyond_global_kernel(int count, float* out) {
  if (static_cast<int>(threadIdx.x) <= count) out[threadIdx.x] = 1;  // line: beyond_global
}

__global__ void beyond_static_kernel(int offset, float* out) {
  __shared__ float values[64];
  values[static_cast<int>(threadIdx.x) + offset] = 1;  // line: beyond_static
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void beyond_dynamic_kernel(int offset, float* out) {
  float* values = static_cast<float*>(dynamic_shared_memory());
  values[static_cast<int>(threadIdx.x) + offset] = 1;  // line: beyond_dynamic
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void misaligned_kernel(float* out) {
  *reinterpret_cast<float4*>(out + 1) = make_float4(1, 2, 3, 4);  // line: misaligned
}

__global__ void beyond_read_kernel(int offset, float* out) {
  const float v = out[static_cast<int>(threadIdx.x) + offset];  // line: beyond_read
  out[threadIdx.x] = v;
}

__global__ void negative_kernel(int offset, float* out) {
  out[static_cast<int>(threadIdx.x) - offset] = 1;  // line: negative
}

// The compiler does not know the array behind the pointer.
__attribute__((noinline)) __device__ void store(float* values, int at) {
  values[at] = 1;  // line: beyond_pointer
}
__global__ void beyond_pointer_kernel(int offset, float* out) {
  __shared__ float values[64];
  store(values, static_cast<int>(threadIdx.x) + offset);
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void misaligned_read_kernel(float* out) {
  const float4 v = *reinterpret_cast<const float4*>(out + 2);  // line: misaligned_read
  out[0] = v.x;
}

__global__ void misaligned_shared_kernel(float* out) {
  float* values = static_cast<float*>(dynamic_shared_memory());
  *reinterpret_cast<float4*>(values + 1) = make_float4(1, 2, 3, 4);  // line: misaligned_shared
  out[0] = values[1];
}

__global__ void through_struct_kernel(Table table, float* out) {
  out[threadIdx.x] = table.values[threadIdx.x];  // line: through_struct
}

template <class... P>
cudaError_t planted(const char* name, void (*kernel)(P...), unsigned threads, P... parameters) {
  return launch(nullptr, {name, 1, threads, 256}, kernel, parameters...);
}

}  // namespace

#define DEFINE(name, threads)                           \
  cudaError_t name(float* out) {                        \
    return planted(#name, name##_kernel, threads, out); \
  }
SIMT_PLANTED(DEFINE)
#undef DEFINE
#define DEFINE(name, threads)                               \
  cudaError_t name(float* out, int at) {                    \
    return planted(#name, name##_kernel, threads, at, out); \
  }
SIMT_PLANTED_AT(DEFINE)
#undef DEFINE
cudaError_t left_by_another_block(float* out) {
  return launch(nullptr, {"left_by_another_block", 2, 64}, left_by_another_block_kernel, out);
}
cudaError_t two_blocks_one_cell(float* out) {
  return launch(nullptr, {"two_blocks_one_cell", {3, 2}, 32}, two_blocks_one_cell_kernel, out);
}
cudaError_t blocks_one_variable(float* out) {
  return launch(nullptr, {"blocks_one_variable", {3, 2}, 32}, blocks_one_variable_kernel, out);
}
cudaError_t memory_of_the_host(float* out) {
  static const std::vector<float> values(64, 1.0f);
  return planted("memory_of_the_host", memory_of_the_host_kernel, 64, Table{values.data()}, out);
}

cudaError_t through_struct(float* inside, float* out) {
  return planted("through_struct", through_struct_kernel, 64, Table{inside}, out);
}

}  // namespace simt::test
