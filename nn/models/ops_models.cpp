#include <utility>

#include "nn/models/cifarnet.h"
#include "nn/models/convnext.h"
#include "nn/models/efficientnet.h"
#include "nn/models/mobilenet.h"
#include "nn/models/vision_transformer.h"

// The models of athanor_ops, registered before main() if this file is linked.

namespace athanor::nn {
namespace {

void add(const char* name, std::int64_t smallest_image, ModelFactory make) {
  register_model(name, std::move(make), {1000, 3, 224}, smallest_image);
}

template <class M, auto... more> std::unique_ptr<Module> make(const ModelOptions& options) {
  return std::make_unique<M>(options, more...);
}

bool add_all() {
  register_model("cifarnet", make<CifarNet>, {10, 3, 32}, 25);
  add("mobilenet_v2", 1, make<MobileNetV2>);
  add("mobilenet_v3_large", 1,
      [](const auto& options) { return std::make_unique<MobileNetV3>(true, options); });
  add("mobilenet_v3_small", 1,
      [](const auto& options) { return std::make_unique<MobileNetV3>(false, options); });
  add("efficientnet_b0", 1, make<EfficientNet>);
  add("convnext_tiny", 32, make<ConvNeXt>);
  add("vit_tiny", 16, make<VisionTransformer, kVitTiny>);
  add("vit_b_16", 16, make<VisionTransformer, kVitB16>);
  return true;
}

}  // namespace
}  // namespace athanor::nn

// Programs request this symbol from the linker (cmake/library.cmake).
extern "C" const bool athanor_ops_models;
extern "C" const bool athanor_ops_models = athanor::nn::add_all();
