#include "nn/scale_outputs.h"

#include <vector>

#include "nn/linear.h"
#include "tensor/base/error.h"

namespace athanor::nn {

static Linear& last_layer(Module& network, std::int64_t outputs) {
  Linear* last = nullptr;
  network.for_each_module([&](Module& module, const std::vector<Parameter>& parameters) {
    if (!parameters.empty()) last = dynamic_cast<Linear*>(&module);
  });
  ATH_CHECK(last && last->options().bias && last->options().activation == Activation::none,
            "scale_outputs: the network's last layer must be linear, with a bias and without an activation");
  ATH_CHECK(last->bias().numel() == outputs,
            "scale_outputs: each of {} outputs must have a mean and a scale, but there are {}",
            last->bias().numel(), outputs);
  return *last;
}

void check_scalable(Module& network, std::int64_t outputs) {
  (void)last_layer(network, outputs);
}

void scale_outputs(Module& network, std::span<const double> mean, std::span<const double> scale) {
  ATH_CHECK(mean.size() == scale.size(),
            "scale_outputs: must have as many means as scales, but has {} and {}", mean.size(), scale.size());
  const Linear& last = last_layer(network, std::ssize(mean));
  const auto write = [&](const Tensor& weights, bool is_bias) {
    std::vector<double> values = weights.detach().to_vector();
    const std::size_t each = values.size() / mean.size();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = values[i] * scale[i / each] + (is_bias ? mean[i] : 0);
    std::vector<float> rounded(values.begin(), values.end());
    weights.detach().copy_bytes_from(Tensor::from(rounded, weights.shape(), weights.device()));
  };
  write(last.weight(), false);
  write(last.bias(), true);
}

}  // namespace athanor::nn
