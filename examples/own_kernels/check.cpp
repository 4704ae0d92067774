#include <cstdio>
#include <cstring>
#include <vector>

#include "row_sum.h"

// check_races [racy]: runs a kernel and compares its result. Codes: 0 right; 1 wrong, or the emulator found
// an error.

namespace {

constexpr int kRows = 3, kCols = 1000;

int failed(const char* what) {
  std::printf("%s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool racy = argc > 1 && std::strcmp(argv[1], "racy") == 0;
  const std::vector<float> host(kRows * kCols, 0.5f);
  const std::size_t bytes = host.size() * sizeof(float);
  float *x = nullptr, *y = nullptr;
  if (cudaMalloc(&x, bytes) != cudaSuccess || cudaMalloc(&y, kRows * sizeof(float)) != cudaSuccess)
    return failed("cudaMalloc");
  if (cudaMemcpy(x, host.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess) return failed("cudaMemcpy");

  if ((racy ? row_sum_racy : row_sum)(kRows, kCols, x, y, nullptr) != cudaSuccess) return failed("launch");
  if (cudaDeviceSynchronize() != cudaSuccess) return failed("the kernel");

  float sums[kRows];
  if (cudaMemcpy(sums, y, sizeof sums, cudaMemcpyDeviceToHost) != cudaSuccess) return failed("cudaMemcpy");
  for (const float sum : sums) {
    if (sum != kCols * 0.5f) return std::printf("a row's sum must be %g, but is %g\n", kCols * 0.5, sum), 1;
  }
  cudaFree(x);
  cudaFree(y);
  std::printf("right\n");
  return 0;
}
