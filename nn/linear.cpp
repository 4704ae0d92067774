#include "nn/linear.h"

#include "autograd/matmul.h"

namespace athanor::nn {

Linear::Linear(std::int64_t in, std::int64_t out, const LinearOptions& options) : options_(options) {
  ATH_CHECK(in > 0 && out > 0, "Linear: sizes must be > 0, but got {} -> {}", in, out);
  const FlattenedImage& image = options.image;
  const std::int64_t pixels = image.height * image.width * image.channels;
  ATH_CHECK(pixels == 0 || pixels == in, "Linear: a flattened image of {} x {} x {} must give {} inputs",
            image.height, image.width, image.channels, in);
  weight_ = register_parameter("weight", Tensor::zeros({out, in}));
  if (options.bias) bias_ = register_parameter("bias", Tensor::zeros({out}), {.decay = false});
  needs_values();
}

Tensor Linear::forward(const Tensor& x) {
  return linear(x, weight_, bias_, options_.activation);
}

void Linear::reset(const InitKeys& keys) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight_.dim(1)));
  const Init standard = [bound](const Tensor& w, RandomKey key) { init::uniform(w, key, -bound, bound); };
  (options_.weight_init ? options_.weight_init : standard)(weight_, keys("weight"));
  if (bias_.defined()) (options_.bias_init ? options_.bias_init : standard)(bias_, keys("bias"));
}

}  // namespace athanor::nn
