#include "kernels/hash.h"

#include "kernels/cpu/context.h"
#include "kernels/cuda/context.h"
#include "tests/cuda/device.h"

namespace athanor::hash_test {

using HashOnDevice = test::DeviceTest;

TEST_F(HashOnDevice, EqualsTheCpuForEverySizeAndStart) {
  CudaContext& context = cuda_context(test::device());
  for (const std::int64_t n : {0, 1, 31, 257, 5000, 70000}) {
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{1} << 40}) {
      const Tensor x = test::filled({{n}, test::Layout::misaligned}, DType::f32, {1});
      EXPECT_EQ(kernels::hash_elements(context, test::on_device_like(x), first),
                kernels::hash_elements(cpu_context(), x, first));
    }
  }
}

TEST_F(HashOnDevice, PartsAddUp) {
  CudaContext& context = cuda_context(test::device());
  const Tensor x = test::filled({{3000}}, DType::f32, {2}).to(test::device());
  const Tensor head = x.view_as_strided({1001}, {1}, 0), tail = x.view_as_strided({1999}, {1}, 1001);
  EXPECT_EQ(kernels::hash_elements(context, head, 0) + kernels::hash_elements(context, tail, 1001),
            kernels::hash_elements(context, x, 0));
}

TEST_F(HashOnDevice, OneElementIsItsFormula) {
  const Tensor x = Tensor::from(std::vector<float>{1.0f}, {1}, test::device());
  EXPECT_EQ(kernels::hash_elements(cuda_context(test::device()), x, 5),
            kernels::hash_element(5, 0x3f800000u));
}

}  // namespace athanor::hash_test
