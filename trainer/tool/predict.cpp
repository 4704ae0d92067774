#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "autograd/shape.h"
#include "data/formats/detail/file_bytes.h"
#include "data/formats/detail/image_files.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/inference/predictor.h"
#include "trainer/readable.h"
#include "trainer/tool/commands.h"
#include "trainer/tool/pictures.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

struct PredictOptions {
  std::string model;
  std::vector<std::string> pictures;
  std::int64_t top = 3;
  std::int64_t batch_size = 32;
  bool json = false;
  std::string bad_samples = "list";
};

/// Reads a file's pixels as model input. Throws IoError or OutOfMemoryError naming the file.
void read(const Predictor& predictor, const fs::path& file, std::span<std::uint8_t> pixels) {
  const std::vector<std::byte> bytes =
      detail::FileBytes(file, "image", "it must be a JPEG, PNG or WebP").all();
  try {
    predictor.read(bytes, pixels);
  } catch (const IoError& error) {
    detail::fail<IoError>("{}: {}", file.string(), error.what());
  } catch (const OutOfMemoryError& error) {
    detail::fail<OutOfMemoryError>("{}: {}", file.string(), error.what());
  }
}

/// Prints one line per picture, with `count` pairs of class and probability.
void print(const PredictOptions& options, const Predictor& predictor, const fs::path& file,
           std::span<const std::int64_t> classes, std::span<const float> probabilities) {
  nlohmann::ordered_json json{{"image", file.string()}, {"top", nlohmann::ordered_json::array()}};
  std::string text;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const std::string name = predictor.class_name(classes[i]);
    const double probability = probabilities[i];
    json["top"].push_back({{"class", name}, {"index", classes[i]}, {"probability", probability}});
    text += fmt::format("{}{} ({:.1f} %)", i > 0 ? ", " : "", printable(name), 100 * probability);
  }
  if (options.json) {
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}: {}\n", printable(file.string()), text);
  }
}

/// Predicts for all readable files; stderr names the others, or `strict` makes the first an error. Returns
/// the number of readable ones.
std::size_t predict_batch(const PredictOptions& options, bool strict, const Predictor& predictor,
                          std::span<const fs::path> files) {
  const ImageSpec& spec = predictor.info().images;
  const Tensor all = Tensor::empty({std::ssize(files), spec.height, spec.width, spec.channels}, {DType::u8});
  std::vector<fs::path> known;
  const auto refuse = [strict](const Error& error) {
    if (strict) throw;
    std::fprintf(stderr, "athanor: %s\n", printable(error.what()).c_str());
  };
  for (const fs::path& file : files) {
    std::uint8_t* const to = all.data<std::uint8_t>() + std::ssize(known) * spec.bytes();
    try {
      read(predictor, file, {to, static_cast<std::size_t>(spec.bytes())});
      known.push_back(file);
    } catch (const IoError& error) {
      refuse(error);
    } catch (const OutOfMemoryError& error) {
      refuse(error);
    }
  }
  if (!known.empty()) {
    const std::int64_t k = std::min(options.top, spec.classes);
    const Predictions found = predictor.predict(narrow(all, 0, 0, std::ssize(known)), k);
    const auto row = [k]<class T>(const T* values, std::size_t i) {
      return std::span(values + static_cast<std::int64_t>(i) * k, static_cast<std::size_t>(k));
    };
    for (std::size_t i = 0; i < known.size(); ++i)
      print(options, predictor, known[i], row(found.classes.data<std::int64_t>(), i),
            row(found.probabilities.data<float>(), i));
  }
  return known.size();
}

void predict(const PredictOptions& options) {
  ATH_CHECK(options.top >= 1, "--top: must be at least 1, but got {}", options.top);
  ATH_CHECK(options.batch_size >= 1 && options.batch_size <= 4096,
            "--batch-size: must be in [1, 4096], but got {}", options.batch_size);
  const BadSamples bad = read_flag::bad_samples("--bad-samples", options.bad_samples);
  const Predictor predictor(options.model);
  const Pictures pictures = pictures_of(options.pictures);
  const std::vector<fs::path>& files = pictures.files;
  const std::string unused = text_of(pictures.unused);
  ATH_CHECK(!files.empty(), "predict: needs a JPEG, PNG or WebP, but found none in {}{}",
            fmt::join(options.pictures, ", "), unused.empty() ? "" : ", only " + unused);
  if (!unused.empty()) std::fprintf(stderr, "not used: %s\n", unused.c_str());
  const std::int64_t channels = predictor.info().images.channels;
  ATH_CHECK(channels == 1 || channels == 3, "the model must take images of 1 or 3 channels, but takes {}",
            channels);
  std::size_t readable = 0;
  const auto batch = static_cast<std::size_t>(options.batch_size);
  for (std::size_t i = 0; i < files.size(); i += batch)
    readable += predict_batch(options, !bad.skip && !bad.list, predictor,
                              std::span(files).subspan(i, std::min(batch, files.size() - i)));
  const auto unreadable = static_cast<std::int64_t>(files.size() - readable);
  if (bad.skip && unreadable > 0) {
    std::fprintf(stderr, "%s of %s files cannot be read\n", with_commas(unreadable).c_str(),
                 with_commas(std::ssize(files)).c_str());
    if (readable == 0 || (bad.limit >= 0 && unreadable > bad.limit)) throw SomeUnreadable();
  }
  if (bad.skip) return;
  const bool all =
      unreadable == 0 && std::none_of(pictures.unused.begin(), pictures.unused.end(),
                                      [](const Unused& one) { return one.cause == detail::kUnreadable; });
  if (!all) throw SomeUnreadable();
}

}  // namespace

void add_predict(CLI::App& app) {
  CLI::App* command = app.add_subcommand("predict", "classify pictures with a trained model");
  const auto options = std::make_shared<PredictOptions>();
  command->add_option("MODEL", options->model, "folder of a run, or its model.safetensors")->required();
  command
      ->add_option("IMAGE", options->pictures,
                   "JPEG, PNG or WebP files, folders of them, or - for a list on stdin")
      ->required();
  command->add_option("--top", options->top, "number of most probable classes to print [3]");
  command->add_option("--batch-size", options->batch_size, "images at a time [32]");
  command->add_flag("--json", options->json, "a JSON object per line and picture");
  command->add_option(
      "--bad-samples", options->bad_samples,
      "list: name each file that cannot be read, and end with code 2; skip[:LIMIT]: name them, "
      "and end with code 0 unless there are more than LIMIT; strict: the first ends it [list]");
  command->callback([options] { predict(*options); });
}

}  // namespace athanor::tool
