#include "examples/athanor_tool/convert.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "examples/athanor_tool/convert_onnx.h"
#include "nn/models/model.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "trainer/run_folder.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string in, out;
  OnnxForm onnx;
};

std::unique_ptr<nn::Module> network_of(const ModelFile& file, const fs::path& path) {
  const ModelInfo& info = file.info;
  const std::vector<std::string> known = nn::model_names();
  ATH_CHECK(std::find(known.begin(), known.end(), info.model) != known.end(),
            "convert: {} must hold a network that --model names, but holds {} of {}", path.string(),
            info.model.empty() ? "a network" : info.model, info.program);
  const ImageSpec& images = info.images;
  try {
    auto network = nn::make_model(info.model, {images.classes, images.channels, images.height}, 0);
    network->load_state_dict(file.weights);
    return network;
  } catch (const ArgumentError& error) {
    detail::fail<IoError>("convert: {} cannot be used: {}", path.string(), error.what());
  }
}

void convert(const Options& options) {
  const fs::path out = options.out;
  ATH_CHECK(out.extension() == ".onnx", "convert: OUT must end in .onnx, but is '{}': unknown file type",
            out.string());
  const fs::path given = options.in;
  std::error_code ignored;
  const fs::path path = fs::is_directory(given, ignored) ? model_path(given, "") : given;
  const ModelFile file = load_model(path);
  const auto network = network_of(file, path);
  write_onnx(*network, file.info, out, options.onnx);
  fmt::print("{}: {} as ONNX, {:.1f} MB\n", printable(out.string()), file.info.model,
             static_cast<double>(fs::file_size(out)) / 1e6);
}

}  // namespace

void add_convert(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("convert", "a trained network in the form that another program reads");
  const auto options = std::make_shared<Options>();
  command->add_option("MODEL", options->in, "folder of a run, or its model.safetensors")->required();
  command->add_option("OUT", options->out, "FILE.onnx")->required();
  command->add_option("--input", options->onnx.input,
                      "ONNX: order of the images' axes, nchw or nhwc [nchw; with --preprocess nhwc]");
  command->add_flag("--preprocess", options->onnx.preprocess,
                    "ONNX: the graph takes u8 pixels, and normalises them");
  command->callback([options] { convert(*options); });
}

}  // namespace athanor::tool
