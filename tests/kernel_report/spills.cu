// Kernels that must not be on a hot list, and one that may.

namespace athanor::kernels {
namespace {

template <class T> __global__ void tidy(T* y) {
  y[threadIdx.x] = y[threadIdx.x] + T(1);
}

// 128 sums alive at once, in the 64 registers that 1024 threads leave each.
__global__ void __launch_bounds__(1024) spills(const float* x, float* y, int n) {
  float sum[128] = {};
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int k = 0; k < 128; ++k) sum[k] += x[i * 128 + (k + threadIdx.x) % 128];
  }
#pragma unroll
  for (int k = 0; k < 128; ++k) y[k * 1024 + threadIdx.x] = sum[k];
}

// An array indexed at run time lives in memory.
__global__ void has_stack(const int* at, float* y) {
  float row[16];
  for (int k = 0; k < 16; ++k) row[at[k] % 16] = y[k];
  y[threadIdx.x] = row[threadIdx.x % 16];
}

}  // namespace

void use(void** kernels) {
  kernels[0] = reinterpret_cast<void*>(&tidy<float>);
  kernels[1] = reinterpret_cast<void*>(&spills);
  kernels[2] = reinterpret_cast<void*>(&has_stack);
}

}  // namespace athanor::kernels
