#pragma once

#include <gtest/gtest.h>

#include "kernels/context.h"
#include "tensor/stream.h"
#include "tests/support/cases.h"
#include "tests/support/compare.h"

namespace athanor::test {

/// The device these tests run on: a GPU, or the emulator.
inline Device device() {
  return {DeviceType::cuda, 0};
}

/// `using Relu = test::DeviceTest; TEST_F(Relu, ...)`: skipped, with the reason, where there is no device. An
/// error of a kernel that the test never waited for fails the test, too.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  }
  void TearDown() override {
    if (!IsSkipped()) synchronize(device());
  }
};

/// x on the device, with the same shape and strides.
inline Tensor on_device_like(const Tensor& x) {
  if (x.is_contiguous()) return x.to(device());
  std::int64_t last = 0;
  for (int axis = 0; axis < x.rank(); ++axis) last += (x.shape()[axis] - 1) * x.strides()[axis];
  if (x.numel() == 0) last = -1;
  const Tensor span = x.view_as_strided({last + 1}, {1}, 0);
  return span.to(device()).view_as_strided(x.shape(), x.strides(), 0);
}

}  // namespace athanor::test
