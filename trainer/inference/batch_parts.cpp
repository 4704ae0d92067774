#include "trainer/inference/batch_parts.h"

#include <algorithm>

#include "trainer/profile/layers.h"

namespace athanor {
namespace {

// Of a core's second-level cache, whatever the CPU: parts, and so the bits, depend on the network alone.
constexpr std::int64_t kCachePerThread = 512 << 10;
// Measured on a Zen 3 (AVX2), as times of a whole batch over those of its parts: ResNet-20, 0.7 MB of weights
// for each MB of activations, gains 1.2 to 1.3; MobileNetV2 (0.2) 1.1 to 1.2; LeNet-5 (6) 1.1 in large parts
// alone; ResNet-18 for small images (9) and CifarNet (7) lose.
constexpr std::int64_t kActivationsPerWeights = 16;

std::int64_t quotient_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

PassBytes measure_pass(nn::Module& network, const ImageSpec& images, DType dtype) {
  const Tensor image = Tensor::zeros({1, images.height, images.width, images.channels}, {dtype});
  PassBytes pass{.weights = network.parameter_count() * static_cast<std::int64_t>(size_of(dtype))};
  if (pass.weights == 0) {  // a quantized network's are buffers
    for (const NamedTensor& buffer : network.buffers())
      pass.weights += static_cast<std::int64_t>(buffer.tensor.bytes());
  }
  for (const Layer& layer : trace_layers(network, [&] { (void)network(image); })) {
    pass.activations += layer.activation_bytes;
    pass.largest = std::max(pass.largest, layer.activation_bytes);
  }
  return pass;
}

std::int64_t images_at_a_time(const PassBytes& pass, std::int64_t batch, std::int64_t threads) {
  if (pass.activations == 0) return batch;
  const std::int64_t least = std::max({threads, quotient_up(kCachePerThread * threads, pass.largest),
                                       quotient_up(kActivationsPerWeights * pass.weights, pass.activations)});
  return quotient_up(batch, std::max<std::int64_t>(1, batch / least));
}

}  // namespace athanor
