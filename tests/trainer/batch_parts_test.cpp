#include "trainer/inference/batch_parts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/creation.h"
#include "autograd/grad_mode.h"
#include "autograd/packed_model.h"
#include "autograd/shape.h"
#include "kernels/cpu/context.h"
#include "nn/quantized/quantized_network.h"
#include "tests/support/count_new.h"
#include "tests/support/small_model.h"
#include "trainer/inference/predictor.h"

// A large batch is computed in parts whose activations stay in the cores' caches.

namespace athanor::batch_parts_test {

constexpr ImageSpec kImages{32, 32, 3, 10};

class BatchParts : public testing::Test {
 protected:
  void SetUp() override { cpu_context().set_threads(2); }
  void TearDown() override { cpu_context().set_threads(threads_); }

 private:
  int threads_ = cpu_context().threads();
};

TEST_F(BatchParts, FitTheCachesAndOutweighTheWeights) {
  const PassBytes small_weights{.weights = 1 << 20, .activations = 2 << 20, .largest = 64 << 10};
  EXPECT_EQ(images_at_a_time(small_weights, 128, 2), 16);
  EXPECT_EQ(images_at_a_time(small_weights, 128, 4), 32) << "as many more caches";
  EXPECT_EQ(images_at_a_time(small_weights, 31, 2), 31) << "not two of 16";
  EXPECT_EQ(images_at_a_time(small_weights, 33, 2), 17);
  const PassBytes large_weights{.weights = 40 << 20, .activations = 5 << 20, .largest = 256 << 10};
  EXPECT_EQ(images_at_a_time(large_weights, 128, 2), 128);
  EXPECT_EQ(images_at_a_time(large_weights, 512, 2), 128);
  const PassBytes large_images{.weights = 14 << 20, .activations = 78 << 20, .largest = 5 << 20};
  EXPECT_EQ(images_at_a_time(large_images, 16, 2), 4);
  EXPECT_EQ(images_at_a_time({}, 16, 2), 16) << "a network that refuses zeros";
}

TEST_F(BatchParts, APassIsMeasuredInAnyMode) {
  const auto network = test::small_network("resnet20", kImages);
  const PassBytes plain = measure_pass(*network, kImages);
  EXPECT_EQ(plain.weights, network->parameter_count() * 4);
  EXPECT_EQ(plain.largest, 32 * 32 * 16 * 4);
  EXPECT_GT(plain.activations, 10 * plain.largest);
  const PackedModel model;
  const InferenceMode inference(model);
  const PassBytes packed = measure_pass(*network, kImages);
  EXPECT_EQ(packed.largest, plain.largest);
  EXPECT_GT(packed.activations, 10 * plain.largest);
}

TEST_F(BatchParts, APassOfAQuantizedNetworkIsInBytes) {
  const auto network = test::small_network("resnet20", kImages);
  nn::Calibration calibration(*network, {32, 32, 3});
  calibration.observe(randn({2, 32, 32, 3}, {1, 1}));
  const auto quantized = nn::quantize(calibration);
  const PassBytes pass = measure_pass(*quantized, kImages), floats = measure_pass(*network, kImages);
  EXPECT_EQ(pass.largest, floats.largest / 4);
  EXPECT_LT(pass.weights, 0.3 * static_cast<double>(floats.weights));
  EXPECT_GT(pass.weights, 0.2 * static_cast<double>(floats.weights));
}

TEST_F(BatchParts, HaveTheBitsOfCallsWithSoFewImages) {
  auto network = test::small_network("resnet20", kImages);
  const PassBytes pass = measure_pass(*network, kImages);
  const Predictor predictor(std::move(network), test::model_info("resnet20", kImages));
  const std::int64_t threads = cpu_context().threads();  // one in a build without OpenMP
  for (const std::int64_t n : {128, 37}) {
    const std::int64_t part = images_at_a_time(pass, n, threads);
    if (threads == 2) {
      EXPECT_EQ(part, n == 128 ? 16 : 19);
    }
    const Tensor images = test::noise_images({n, 32, 32, 3}), logits = predictor.logits(images);
    ASSERT_EQ(logits.shape(), (Shape{n, 10}));
    std::vector<double> of_parts;
    for (std::int64_t first = 0; first < n; first += part) {
      const Tensor some = narrow(images, 0, first, std::min(part, n - first));
      for (const double one : predictor.logits(some).to_vector()) of_parts.push_back(one);
    }
    EXPECT_EQ(logits.to_vector(), of_parts);
    allocator_of(kCpu).reset_peak();
    [[maybe_unused]] const std::int64_t news = test::operator_news();
    predictor.logits(images);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // there the pool is off
    EXPECT_EQ(test::operator_news() - news, 0);
#endif
    // A block's input, what is between, and its result, of one part; large blocks of memory are rounded up.
    const std::int64_t least = part * std::int64_t{3 * 32 * 32 * 16 * sizeof(float)};
    EXPECT_LE(allocator_of(kCpu).stats().peak_by_tag["activations"], 2 * least);
  }
}

}  // namespace athanor::batch_parts_test
