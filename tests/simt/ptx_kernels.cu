#include "simt/launch.h"
#include "tests/simt/ptx_kernels.h"

// What g++ compiles of the kernels that ptx_kernels.ptx has, too, where they do something. `absent` is not
// there.

__global__ void in_no_namespace(int* out) {
  *out = 4;
}

namespace simt::test {

template <int N> __global__ void spelled(int* out) {
  *out = N;
}

namespace {

__global__ void chosen(int* out) {
  out[threadIdx.x] = -1;
}
template <class T> __global__ void reversed(const T* x, T* y) {
  y[threadIdx.x] = x[threadIdx.x];
}
__global__ void narrower(int*, int) {}
__global__ void misaligned(int*) {}
__global__ void absent(int*) {}

}  // namespace

cudaError_t run_chosen(int* out, unsigned threads) {
  return launch(nullptr, {.name = "chosen", .block = threads}, chosen, out);
}
cudaError_t run_reversed(const float* x, float* y, unsigned dynamic_bytes) {
  return launch(nullptr, {.name = "reversed", .block = 16, .shared_bytes = dynamic_bytes}, reversed<float>, x,
                y);
}
cudaError_t run_spelled(int* out) {
  return launch(nullptr, {.name = "spelled"}, spelled<3>, out);
}
cudaError_t run_in_no_namespace(int* out) {
  return launch(nullptr, {.name = "in_no_namespace"}, in_no_namespace, out);
}
cudaError_t run_narrower(int* out) {
  return launch(nullptr, {.name = "narrower"}, narrower, out, 1);
}
cudaError_t run_misaligned(int* out) {
  return launch(nullptr, {.name = "misaligned"}, misaligned, out);
}
cudaError_t run_absent(int* out) {
  return launch(nullptr, {.name = "absent"}, absent, out);
}

}  // namespace simt::test
