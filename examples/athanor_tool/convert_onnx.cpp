#include "examples/athanor_tool/convert_onnx.h"

#include <cstdint>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nn/onnx/export.h"
#include "tensor/error.h"

namespace athanor::tool {
namespace {

nn::ImageLayout layout_of(const OnnxForm& form) {
  if (form.input.empty()) return form.preprocess ? nn::ImageLayout::nhwc : nn::ImageLayout::nchw;
  ATH_CHECK(form.input == "nchw" || form.input == "nhwc", "--input: must be nchw or nhwc, but got '{}'",
            form.input);
  return form.input == "nchw" ? nn::ImageLayout::nchw : nn::ImageLayout::nhwc;
}

/// A name for every class: its number if the data set has no names.
std::vector<std::string> class_names(const ModelInfo& info) {
  std::vector<std::string> names = info.class_names;
  for (std::int64_t i = std::ssize(names); info.class_names.empty() && i < info.images.classes; ++i)
    names.push_back(fmt::to_string(i));
  return names;
}

}  // namespace

void write_onnx(nn::Module& network, const ModelInfo& info, const std::filesystem::path& out,
                const OnnxForm& form) {
  const auto text = [](const nlohmann::json& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  nn::OnnxOptions options;
  options.input = layout_of(form);
  if (form.preprocess) {
    options.pixel_mean = info.pixels.mean;
    options.pixel_deviation = info.pixels.stddev;
  }
  options.metadata = {{"model", info.model},
                      {"program", info.program},
                      {"version", info.version},
                      {"class_names", text(class_names(info))},
                      {"pixel_mean", text(info.pixels.mean)},
                      {"pixel_deviation", text(info.pixels.stddev)},
                      {"shorter_side", fmt::to_string(info.shorter_side)},
                      {"preprocess", form.preprocess ? "inside" : "outside"}};
  nn::export_onnx(network, {info.images.height, info.images.width, info.images.channels}, out, options);
}

}  // namespace athanor::tool
