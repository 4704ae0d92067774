// A frozen network beside one that learns, on the device; and pictures that come from there.
#include <gtest/gtest.h>

#include "autograd/creation.h"
#include "tests/cuda/device.h"
#include "tests/support/frozen_cases.h"
#include "trainer/samples.h"

namespace athanor::frozen_test {

using namespace test;

using FrozenOnDevice = DeviceTest;

TEST_F(FrozenOnDevice, ANetworkStaysAsItIsToTheBit) {
  for (const Precision precision : {Precision::f32, Precision::f16})
    expect_a_network_stays(device(), precision);
}

TEST_F(FrozenOnDevice, AResumedRunHasTheWeightsThatItBeganWith) {
  for (const Precision precision : {Precision::f32, Precision::f16})
    expect_a_resume_keeps_it(device(), precision);
}

TEST_F(FrozenOnDevice, AGridOfPicturesEqualsTheCpu) {
  const Tensor images = randn({5, 6, 4, 3}, {3, 1});
  EXPECT_EQ(draw_grid(images.to(device()), {.low = -2, .high = 2}).pixels,
            draw_grid(images, {.low = -2, .high = 2}).pixels);
}

}  // namespace athanor::frozen_test
