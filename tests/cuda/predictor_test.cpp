// A Predictor on the device, in every precision, against one in f32 on the CPU.
#include "trainer/inference/predictor.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/cuda/device.h"
#include "tests/support/small_model.h"

namespace athanor::predictor_device_test {

using test::device;
using PredictorOnDevice = test::DeviceTest;

/// The largest difference, of the largest of `expected`.
double error_of(const std::vector<double>& found, const std::vector<double>& expected) {
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::abs(found[i] - expected[i]));
  }
  return error / largest;
}

TEST_F(PredictorOnDevice, StaysNearTheCpuInEveryPrecision) {
  const ModelInfo info = test::model_info("digits_cnn", test::kDigits);
  const auto network = [] { return test::small_network("digits_cnn", test::kDigits); };
  const Tensor images = test::noise_images({3, 8, 8, 1});
  const std::vector<double> expected = Predictor(network(), info).logits(images).to_vector();
  for (const auto& [precision, tolerance] :
       {std::pair{Precision::f32, 1e-5}, {Precision::bf16, 3e-2}, {Precision::f16, 4e-3}}) {
    auto there = network();
    there->to(device());
    const Predictor predictor(std::move(there), info, precision);
    const Tensor logits = predictor.logits(images);
    EXPECT_EQ(logits.device(), device());
    EXPECT_EQ(logits.dtype(), DType::f32);
    const std::vector<double> found = logits.to(kCpu).to_vector();
    EXPECT_LE(error_of(found, expected), tolerance) << name_of(precision);
    if (precision != Precision::f32) {
      EXPECT_GT(error_of(found, expected), 0) << name_of(precision) << " rounds nothing";
    }
    const Predictions guessed = predictor.predict(images, 2);
    EXPECT_EQ(guessed.classes.shape(), (Shape{3, 2}));
    EXPECT_TRUE(guessed.classes.device().is_cpu());
  }
}

}  // namespace athanor::predictor_device_test
