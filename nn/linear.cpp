#include "nn/linear.h"

#include <mutex>

#include "autograd/grad_mode.h"
#include "autograd/matmul.h"
#include "kernels/packed_weights.h"

namespace athanor::nn {

/// Packed by the first call that uses it.
struct Linear::Packed {
  std::once_flag once;
  std::unique_ptr<kernels::PackedWeights> weights;
};

Linear::~Linear() = default;

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

void Linear::on_pack() {
  packed_ = has_packed_weights() ? std::make_unique<Packed>() : nullptr;
}

Tensor Linear::forward(const Tensor& x) {
  if (packed_ && inference_mode() && x.defined() && x.device().is_cpu() && x.dtype() == DType::f32 &&
      weight_.dtype() == DType::f32) {
    std::call_once(packed_->once,
                   [&] { packed_->weights = std::make_unique<kernels::PackedWeights>(weight_, bias_); });
    return linear_packed(x, *packed_->weights, options_.activation);
  }
  return linear(x, weight_, bias_, options_.activation);
}

void Linear::reset(const InitKeys& keys) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight_.dim(1)));
  const Init standard = [bound](const Tensor& w, RandomKey key) { init::uniform(w, key, -bound, bound); };
  (options_.weight_init ? options_.weight_init : standard)(weight_, keys("weight"));
  if (bias_.defined()) (options_.bias_init ? options_.bias_init : standard)(bias_, keys("bias"));
}

}  // namespace athanor::nn
