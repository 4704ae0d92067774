#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "examples/athanor_tool/convert_onnx.h"
#include "nn/models/model.h"
#include "nn/pretrained.h"
#include "nn/scale_outputs.h"
#include "nn/torch/torch_layout.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/io/safetensors.h"
#include "trainer/checkpoints/run_folder.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/inference/model_file.h"
#include "trainer/inference/named_weights.h"
#include "trainer/inference/weights_file.h"
#include "trainer/tool/tool_main.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

struct ConvertOptions {
  std::string in, out, model, layout;
  std::int64_t channels = 0;
  ImageSize image_size;  ///< 0: as in IN
  OnnxForm onnx;
  bool averages = true;
};

/// A network with the weights of IN, and its description.
struct Loaded {
  ModelInfo info;
  std::unique_ptr<nn::Module> network;
  std::string assumed;  ///< about the images, if the file does not tell
  std::string choice;   ///< of weights, if IN holds several
};

// Reading --------------------------------------------------------------------------------------------------

void check_known(const fs::path& path, const WeightsFile& file, const std::string& model) {
  if (!file.info) {
    ATH_CHECK(!model.empty(), "convert: {} does not name its network: name it with --model, one of {}",
              path.string(), fmt::join(nn::model_names(), " "));
    return;
  }
  const std::string& name = file.info->model;
  ATH_CHECK(model.empty() || model == name, "--model: {} holds {}, but got {}", path.string(),
            name.empty() ? "a network of its own program" : name, model);
  const std::vector<std::string> known = nn::model_names();
  ATH_CHECK(std::find(known.begin(), known.end(), name) != known.end(),
            "convert: {} must hold a network that --model names, but holds {} of {}", path.string(),
            name.empty() ? "a network" : name, file.info->program);
}

/// Other libraries' usual preprocessing: ImageNet normalisation, and a crop of a slightly larger image.
void assume_images(ModelInfo& info) {
  const ImageSpec& images = info.images;
  if (images.channels == 3) {
    info.pixels = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  } else {
    const auto channels = static_cast<std::size_t>(images.channels);
    info.pixels = {std::vector<double>(channels, 0.5), std::vector<double>(channels, 0.5)};
  }
  if (images.height < 64) return;
  if (images.height == images.width) {
    info.shorter_side = images.height * 8 / 7;
  } else {
    info.crop_share = 0.875;
  }
}

/// Gives the description images of another size, prepared alike: the crop keeps its share of them.
void set_image_size(ModelInfo& info, const ImageSize& size) {
  const std::int64_t before = info.images.height;
  if (size == ImageSize{before, info.images.width}) return;
  info.images.height = size.height;
  info.images.width = size.width;
  if (info.shorter_side > 0 && before > 0) {
    if (size.height == size.width) {
      info.shorter_side =
          std::max(size.height, (2 * info.shorter_side * size.height + before) / (2 * before));
    } else {
      info.crop_share = static_cast<double>(before) / static_cast<double>(info.shorter_side);
      info.shorter_side = 0;
    }
  }
  info.test_loss = info.test_accuracy = std::numeric_limits<double>::quiet_NaN();  // of other images
}

/// A quantized model as it is, which a graph can hold, but no other program's network.
Loaded load_quantized(const fs::path& path, const ConvertOptions& options) {
  OpenModel model = open_model(path);
  const auto& [height, width, channels, classes] = model.file.info.images;
  const bool other_images = options.channels > 0 || options.image_size.height > 0;
  ATH_CHECK(
      !other_images,
      "{}: must be left out for a quantized model, but {} is one, of images {}x{}x{}; quantize a model of "
      "other images",
      options.channels > 0 ? "--channels" : "--image-size", path.string(), height, width, channels);
  ATH_CHECK(
      fs::path(options.out).extension() == ".onnx",
      "convert: OUT must end in .onnx for a quantized model, but is {}; for others convert the model that "
      "{} was made of",
      options.out, path.string());
  return {
      .info = std::move(model.file.info), .network = std::move(model.network), .assumed = {}, .choice = {}};
}

Loaded load(const ConvertOptions& options) {
  const NamedWeights given = find_weights(options.in, options.model, "convert");
  const fs::path path = model_of(given.path);
  const std::string& model = given.model.empty() ? options.model : given.model;
  const nn::PretrainedOptions how{.averages = options.averages};
  const WeightsFile file = read_weights(path, how.averages);
  check_known(path, file, model);
  if (file.info && file.info->is_quantized()) return load_quantized(path, options);
  Loaded loaded;
  ModelInfo& info = loaded.info;
  if (file.info) info = *file.info;
  if (info.model.empty()) info.model = model;
  const auto build = [&](std::int64_t classes) {
    const bool resized = options.image_size.height > 0;
    const ImageSize size = resized ? options.image_size : ImageSize{info.images.height, info.images.width};
    const nn::ModelOptions full = nn::model_options(
        info.model,
        {classes, options.channels ? options.channels : info.images.channels, size.height, size.width});
    if (resized || info.images.height == 0) set_image_size(info, {full.image_size, full.image_width});
    info.images.channels = full.in_channels;
    info.images.classes = full.classes;
    loaded.network = nn::make_model(info.model, full, 0);
    try {
      return load_pretrained(*loaded.network, file, how);
    } catch (const ArgumentError& error) {
      detail::fail<>("convert: {} does not hold {}: {}", path.string(), info.model, error.what());
    }
  };
  const nn::Pretrained taken = build(info.images.classes);
  if (!taken.fresh.empty()) build(taken.classes);  // the file determines the number of classes
  loaded.choice = choice_of(taken);
  if (!file.info) {
    info.program = "athanor convert";
    info.weights = path.filename().string();
    info.test_loss = info.test_accuracy = std::numeric_limits<double>::quiet_NaN();
  }
  if (info.pixels.mean.empty()) {
    assume_images(info);
    loaded.assumed = fmt::format("; assuming images normalised with mean {:.4g}, deviation {:.4g}",
                                 fmt::join(info.pixels.mean, " "), fmt::join(info.pixels.stddev, " "));
  }
  return loaded;
}

/// Other programs get the numbers of a regression in their units, from the weights alone.
void to_units(Loaded& loaded) {
  ModelInfo& info = loaded.info;
  if (!info.output_scale.empty()) nn::scale_outputs(*loaded.network, info.output_mean, info.output_scale);
  info.output_mean = info.output_scale = {};
}

// Writing: a function for each form of OUT -----------------------------------------------------------------

/// In the format of a run's model, for athanor predict.
void write_athanor(const Loaded& loaded, const ConvertOptions& options) {
  save_model(options.out, loaded.info, loaded.network->state_dict());
}

/// A file that torchvision's network of that name loads with load_state_dict(strict=True).
void write_torch(const Loaded& loaded, const ConvertOptions& options) {
  safetensors::Metadata metadata = description(loaded.info);
  metadata["format"] = "pt";
  safetensors::save(options.out, nn::to_torch_layout(*loaded.network, loaded.network->state_dict()),
                    metadata);
}

/// A graph for onnxruntime and other runtimes.
void write_graph(const Loaded& loaded, const ConvertOptions& options) {
  write_onnx(*loaded.network, loaded.info, options.out, options.onnx);
}

struct Form {
  const char* extension;
  const char* layout;  ///< the name in --layout; empty: the form has only one
  void (*write)(const Loaded&, const ConvertOptions&);
};
constexpr Form kForms[] = {{".safetensors", "athanor", write_athanor},
                           {".safetensors", "torch", write_torch},
                           {".onnx", "", write_graph}};

const Form& form_of(const ConvertOptions& options) {
  const std::string extension = fs::path(options.out).extension().string();
  std::vector<std::string> known;
  for (const Form& form : kForms) {
    if (form.extension == extension && (options.layout.empty() || form.layout == options.layout)) return form;
    if (std::find(known.begin(), known.end(), form.extension) == known.end())
      known.emplace_back(form.extension);
  }
  ATH_CHECK(extension != ".onnx", "--layout: is for .safetensors, but OUT is {}", options.out);
  detail::fail<>("convert: OUT must end in {}, but is {}", fmt::join(known, " or "), options.out);
}

void convert(const ConvertOptions& options) {
  const Form& form = form_of(options);  // checked before anything is read
  const OnnxForm& onnx = options.onnx;
  ATH_CHECK(form.write == write_graph || (onnx.input.empty() && !onnx.preprocess),
            "{}: is for .onnx, but OUT is {}", onnx.preprocess ? "--preprocess" : "--input", options.out);
  Loaded loaded = load(options);
  if (form.write != write_athanor) to_units(loaded);
  form.write(loaded, options);
  const ImageSpec& images = loaded.info.images;
  fmt::print("{}: {}, {} tensors, images {}x{}x{}, {}{}\n", printable(options.out), loaded.info.model,
             loaded.network->state_dict().size(), images.height, images.width, images.channels,
             counted_outputs(loaded.info), loaded.assumed);
  if (!loaded.choice.empty())
    fmt::print("{}: took the weights {}\n", printable(options.in), printable(loaded.choice));
}

void add_convert(CLI::App& app) {
  CLI::App* command = app.add_subcommand("convert", "convert a network from or to other programs");
  const auto options = std::make_shared<ConvertOptions>();
  command
      ->add_option(
          "IN", options->in,
          "folder of a run, its model.safetensors, a checkpoint, or weights of torchvision's or timm's "
          "network: .safetensors, .pth, .pt, .ckpt, or a name of what scripts/get_weights.sh has fetched")
      ->required();
  command->add_option("OUT", options->out, "file to write: .safetensors or .onnx")->required();
  command->add_option("--model", options->model, "name of the network, if IN does not have it");
  command->add_flag("!--no-ema", options->averages,
                    "of a checkpoint that holds weights and a running average of them, take the weights");
  command
      ->add_option("--layout", options->layout,
                   "athanor: the layout of a run's model; torch: the layout for load_state_dict() [athanor]")
      ->check(CLI::IsMember({"athanor", "torch"}));
  command->add_option("--input", options->onnx.input,
                      "ONNX: order of the images' axes, nchw or nhwc [nchw; with --preprocess nhwc]");
  command->add_flag("--preprocess", options->onnx.preprocess,
                    "ONNX: the graph takes u8 pixels, and normalises them");
  command
      ->add_option("--channels", options->channels,
                   "channels of an image, if IN does not have them [the model's]")
      ->check(CLI::Range(1, 64));
  command->add_option_function<std::string>(
      "--image-size",
      [options](const std::string& text) {
        options->image_size = read_flag::image_size("--image-size", text);
      },
      "side of an image in pixels, or HEIGHTxWIDTH, if it is not as in IN [the model's]");
  command->callback([options] { convert(*options); });
}

const Command convert_command("convert", add_convert);

}  // namespace
}  // namespace athanor::tool
