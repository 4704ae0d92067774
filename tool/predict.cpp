#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "autograd/softmax.h"
#include "autograd/topk.h"
#include "data/preprocess.h"
#include "nn/models/model.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "tool/commands.h"
#include "tool/pictures.h"
#include "trainer/model_file.h"
#include "trainer/run_folder.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string model;
  std::vector<std::string> pictures;
  std::int64_t top = 3;
  std::int64_t batch_size = 32;
  bool json = false;
};

/// A classifier as a run has left it, ready to be asked.
class Predictor {
 public:
  explicit Predictor(const fs::path& path)
      : path_(path),
        file_(load_model(path)),
        network_(make()),
        preprocess_(file_.info.images, file_.info.pixels, DType::f32, kCpu) {}

  const ModelInfo& info() const { return file_.info; }
  /// Its k most probable classes for each image of [N, H, W, C] u8.
  TopK operator()(const Tensor& images, std::int64_t k) const {
    const InferenceMode inference;
    Batch batch;
    batch.images = images;
    batch.samples = Tensor::zeros({images.dim(0)}, {DType::i64});
    return topk(softmax((*network_)(preprocess_(batch, 0, false))), k);
  }

 private:
  std::unique_ptr<nn::Module> make() const {
    const ModelInfo& info = file_.info;
    const std::vector<std::string> known = nn::model_names();
    const bool is_known = std::find(known.begin(), known.end(), info.model) != known.end();
    ATH_CHECK(
        is_known && info.classifies,
        "predict: {} must hold a classifier that --model names, but holds {} of {}: its own program knows "
        "how to use it",
        path_.string(), info.model.empty() ? "a network" : info.model, info.program);
    const ImageSpec& images = info.images;
    try {
      auto network = nn::make_model(info.model, {images.classes, images.channels, images.height}, 0);
      network->load_state_dict(file_.weights);
      network->eval();
      return network;
    } catch (const ArgumentError& error) {
      detail::fail<IoError>("predict: {} cannot be used: {}", path_.string(), error.what());
    }
  }

  fs::path path_;
  ModelFile file_;
  std::unique_ptr<nn::Module> network_;
  Preprocess preprocess_;
};

std::string class_name(const ModelInfo& info, std::int64_t index) {
  return info.class_names.empty() ? fmt::to_string(index) : info.class_names[static_cast<std::size_t>(index)];
}

/// One line of one picture, whose results are `count` pairs of a class and its probability.
void print(const Options& options, const ModelInfo& info, const fs::path& file,
           std::span<const double> classes, std::span<const double> probabilities) {
  nlohmann::ordered_json json{{"file", file.string()}, {"predictions", nlohmann::ordered_json::array()}};
  std::string text;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const auto index = static_cast<std::int64_t>(classes[i]);
    const std::string name = class_name(info, index);
    json["predictions"].push_back({{"class", name}, {"index", index}, {"probability", probabilities[i]}});
    text += fmt::format("{}{} ({:.1f} %)", i > 0 ? ", " : "", name, 100 * probabilities[i]);
  }
  if (options.json) {
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}: {}\n", printable(file.string()), text);
  }
}

/// Of all that can be read; false where one cannot, which stderr names.
bool predict_batch(const Options& options, const Predictor& predictor, PictureReader& reader,
                   std::span<const fs::path> files) {
  const ImageSpec& spec = predictor.info().images;
  const Tensor all = Tensor::empty({std::ssize(files), spec.height, spec.width, spec.channels}, {DType::u8});
  std::vector<fs::path> read;
  for (const fs::path& file : files) {
    std::uint8_t* const to = all.data<std::uint8_t>() + std::ssize(read) * reader.bytes();
    try {
      reader.read(file, {to, static_cast<std::size_t>(reader.bytes())});
      read.push_back(file);
    } catch (const IoError& error) {
      std::fprintf(stderr, "athanor: %s\n", printable(error.what()).c_str());
    }
  }
  if (!read.empty()) {
    const std::int64_t k = std::min(options.top, spec.classes);
    const TopK top = predictor(narrow(all, 0, 0, std::ssize(read)), k);
    const std::vector<double> classes = top.indices.to_vector(), probabilities = top.values.to_vector();
    const auto row = [&](const std::vector<double>& values, std::size_t i) {
      return std::span(values).subspan(i * static_cast<std::size_t>(k), static_cast<std::size_t>(k));
    };
    for (std::size_t i = 0; i < read.size(); ++i)
      print(options, predictor.info(), read[i], row(classes, i), row(probabilities, i));
  }
  return read.size() == files.size();
}

void predict(const Options& options) {
  ATH_CHECK(options.top >= 1, "--top: must be at least 1, but got {}", options.top);
  ATH_CHECK(options.batch_size >= 1 && options.batch_size <= 4096,
            "--batch-size: must be in [1, 4096], but got {}", options.batch_size);
  const fs::path given = options.model;
  std::error_code ignored;
  const Predictor predictor(fs::is_directory(given, ignored) ? model_path(given, "") : given);
  const std::vector<fs::path> files = pictures_of(options.pictures);
  ATH_CHECK(!files.empty(), "predict: there must be a JPEG or PNG, but there is none in {}",
            fmt::join(options.pictures, ", "));
  PictureReader reader(predictor.info());
  bool all = true;
  const auto batch = static_cast<std::size_t>(options.batch_size);
  for (std::size_t i = 0; i < files.size(); i += batch)
    all &= predict_batch(options, predictor, reader,
                         std::span(files).subspan(i, std::min(batch, files.size() - i)));
  if (!all) throw SomeUnreadable();
}

}  // namespace

void add_predict(CLI::App& app) {
  CLI::App* command = app.add_subcommand("predict", "what a trained classifier says of pictures");
  const auto options = std::make_shared<Options>();
  command->add_option("MODEL", options->model, "folder of a run, or its model.safetensors")->required();
  command->add_option("IMAGE", options->pictures, "JPEGs and PNGs, folders of them, or - for a list on stdin")
      ->required();
  command->add_option("--top", options->top, "so many of the most probable classes [3]");
  command->add_option("--batch-size", options->batch_size, "images at a time [32]");
  command->add_flag("--json", options->json, "a JSON object per line and picture");
  command->callback([options] { predict(*options); });
}

}  // namespace athanor::tool
