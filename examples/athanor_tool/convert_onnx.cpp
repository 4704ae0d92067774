#include "examples/athanor_tool/convert_onnx.h"

#include <cstdint>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nn/onnx/export.h"
#include "tensor/base/error.h"

namespace athanor::tool {
namespace {

nn::ImageLayout layout_of(const OnnxForm& form) {
  if (form.input.empty()) return form.preprocess ? nn::ImageLayout::nhwc : nn::ImageLayout::nchw;
  ATH_CHECK(form.input == "nchw" || form.input == "nhwc", "--input: must be nchw or nhwc, but got '{}'",
            form.input);
  return form.input == "nchw" ? nn::ImageLayout::nchw : nn::ImageLayout::nhwc;
}

/// Names for classes that have none, as JSON.
std::string numbers_below(std::int64_t classes) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < classes; ++i) names.push_back(fmt::to_string(i));
  return nlohmann::json(names).dump();
}

}  // namespace

void write_onnx(nn::Module& network, const ModelInfo& info, const std::filesystem::path& out,
                const OnnxForm& form) {
  nn::OnnxOptions options;
  options.input = layout_of(form);
  if (form.preprocess) {
    options.pixel_mean = info.pixels.mean;
    options.pixel_deviation = info.pixels.stddev;
  }
  safetensors::Metadata metadata = description(info);
  if (info.class_names.empty()) metadata["class_names"] = numbers_below(info.images.classes);
  metadata["preprocess"] = form.preprocess ? "inside" : "outside";
  options.metadata.assign(metadata.begin(), metadata.end());
  nn::export_onnx(network, {info.images.height, info.images.width, info.images.channels}, out, options);
}

}  // namespace athanor::tool
