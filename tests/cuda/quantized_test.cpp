#include "nn/init.h"
#include "nn/models/model.h"
#include "nn/quantized/quantized_network.h"
#include "tests/cuda/device.h"

namespace athanor::nn::quantized_test {

using QuantizedOnDevice = test::DeviceTest;

// Plain and residual blocks, depthwise convolutions, tables and gates; none of it in f32 but the images and
// the logits.
TEST_F(QuantizedOnDevice, EqualsTheCpuByteForByte) {
  struct Case {
    const char* model;
    std::int64_t channels, size;
  };
  for (const Case& z : {Case{"lenet5", 1, 28}, {"resnet20", 3, 8}, {"mobilenet_v3_small", 3, 32}}) {
    SCOPED_TRACE(z.model);
    const Shape sample{z.size, z.size, z.channels};
    const auto model =
        make_model(z.model, {.classes = 10, .in_channels = z.channels, .image_size = z.size}, 5);
    const Tensor images = Tensor::empty({3, z.size, z.size, z.channels});
    init::normal(images, {5, 1}, 0.2, 1);
    Calibration calibration(*model, sample);
    calibration.observe(images);
    const auto network = quantize(calibration);
    for (const quantized::Op& op : network->graph().ops)
      EXPECT_NE(op.kind, quantized::OpKind::real) << op.name;

    const Tensor here = network->forward(images);
    network->to(test::device());
    const Tensor there = network->forward(images.to(test::device()));
    EXPECT_EQ(there.device(), test::device());
    EXPECT_TRUE(test::same_bits(there.to(kCpu), here));
    network->to(kCpu);
    EXPECT_TRUE(test::same_bits(network->forward(images), here));
  }
}

}  // namespace athanor::nn::quantized_test
