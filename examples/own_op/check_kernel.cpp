// check_kernel: runs the CUDA kernels on the emulator, and compares them with the CPU's, bit for bit.
#include <cstdio>
#include <vector>

#include "soft_shrink.h"
#include "soft_shrink_cuda.h"

using namespace athanor;

namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess) throw Error(std::string("check_kernel: ") + cudaGetErrorString(error));
}

/// A copy on the emulated device.
struct DeviceCopy {
  explicit DeviceCopy(const Tensor& from) : bytes(from.numel() * sizeof(float)) {
    check(cudaMalloc(&data, bytes));
    check(cudaMemcpy(data, from.data<float>(), bytes, cudaMemcpyHostToDevice));
  }
  ~DeviceCopy() { cudaFree(data); }
  DeviceCopy(const DeviceCopy&) = delete;
  bool equals(const Tensor& expected) const {
    const Tensor here = Tensor::empty(expected.shape());
    check(cudaMemcpy(here.data<float>(), data, bytes, cudaMemcpyDeviceToHost));
    return here.to_vector() == expected.to_vector();
  }
  std::size_t bytes;
  float* data = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  return run_main(argc, argv, [](int, char**) {
    for (const std::int64_t n : {1, 255, 256, 1000}) {
      const Tensor x = randn({n}, {7, 0}), seed = randn({n}, {7, 1});
      require_grad(x);
      const Tensor y = soft_shrink(x, 0.5);
      backward(y, seed);
      DeviceCopy from(x.detach()), dy(seed), to(seed), dx(x.detach());
      check(soft_shrink_forward(n, 0.5f, from.data, to.data, nullptr));
      check(soft_shrink_backward(n, 0.5f, from.data, dy.data, dx.data, nullptr));
      check(cudaDeviceSynchronize());
      if (!to.equals(y.detach()) || !dx.equals(grad_of(x)))
        throw Error("check_kernel: must be equal to the CPU's");
    }
    std::printf("soft_shrink: the kernels are right, on the emulator\n");
    return 0;
  });
}
