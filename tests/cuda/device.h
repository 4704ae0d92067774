#pragma once

#include <cstdlib>

#include <gtest/gtest.h>

#include "kernels/context.h"
#include "tensor/stream.h"
#include "tests/support/cases.h"
#include "tests/support/compare.h"
#include "tests/support/temp_dir.h"

namespace athanor::test {

/// The device these tests run on: a GPU, or the emulator.
inline Device device() {
  return {DeviceType::cuda, 0};
}

/// True where the emulator looks at every access: what repeats itself need not be repeated as often.
#if defined(__SANITIZE_ADDRESS__) || defined(SIMT_RACE)
inline constexpr bool kChecksEveryAccess = true;
#else
inline constexpr bool kChecksEveryAccess = false;
#endif

/// `using Relu = test::DeviceTest; TEST_F(Relu, ...)`: skipped, with the reason, where there is no device. An
/// error of a kernel that the test never waited for fails the test, too.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
    // What is measured here is no user's: plans go to a folder that goes with the process.
    static const TempDir cache;
    setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  }
  void TearDown() override {
    if (!IsSkipped()) synchronize(device());
  }
};

namespace detail {

// With the memory before it that makes it start off alignment.
inline Tensor moved(const Tensor& x, Device to) {
  if (x.numel() == 0) return Tensor::empty({0}, {x.dtype(), to}).view_as_strided(x.shape(), x.strides(), 0);
  const std::int64_t lead = x.offset() % 16;
  if (x.is_contiguous() && lead == 0) return x.to(to);
  std::int64_t last = lead;
  for (int axis = 0; axis < x.rank(); ++axis) last += (x.shape()[axis] - 1) * x.strides()[axis];
  const Tensor span = x.view_as_strided({last + 1}, {1}, -lead);
  return span.to(to).view_as_strided(x.shape(), x.strides(), lead);
}

}  // namespace detail

/// x on the device, with the same shape, strides and alignment.
inline Tensor on_device_like(const Tensor& x) {
  return detail::moved(x, device());
}

/// x of the device on the CPU, with the same shape and strides.
inline Tensor on_cpu_like(const Tensor& x) {
  return detail::moved(x, kCpu);
}

}  // namespace athanor::test
