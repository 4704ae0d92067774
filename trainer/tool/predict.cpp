#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "autograd/shape.h"
#include "data/formats/detail/file_bytes.h"
#include "data/formats/detail/image_files.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/detail/terminal.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/inference/detail/json.h"
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

void print(bool as_json, const fs::path& file, const std::vector<Guess>& guesses) {
  if (as_json) {
    fmt::print("{}", line_of({{"image", file.string()}, {"top", json_of(guesses)}}));
    return;
  }
  std::string text;
  for (const Guess& one : guesses)
    text += fmt::format("{}{} ({:.1f} %)", text.empty() ? "" : ", ", printable(one.name),
                        100 * double{one.probability});
  fmt::print("{}: {}\n", printable(file.string()), text);
}

/// Predicts for all readable files; stderr names the others, or `strict` makes the first an error. Returns
/// the number of readable ones.
std::size_t predict_batch(const PredictOptions& options, bool strict, const Predictor& predictor,
                          std::span<const fs::path> files) {
  const ImageSpec& spec = predictor.info().images;
  const Tensor all = Tensor::empty({std::ssize(files), spec.height, spec.width, spec.channels}, {DType::u8});
  std::vector<fs::path> known;
  for (const fs::path& file : files) {
    std::uint8_t* const to = all.data<std::uint8_t>() + std::ssize(known) * spec.bytes();
    try {
      read(predictor, file, {to, static_cast<std::size_t>(spec.bytes())});
      known.push_back(file);
    } catch (const Error& error) {
      if (strict) throw;
      terminal::say(stderr, "athanor: " + printable(error.what()));
    }
  }
  if (!known.empty()) {
    const std::int64_t k = std::min(options.top, spec.classes);
    const Predictions found = predictor.predict(narrow(all, 0, 0, std::ssize(known)), k);
    for (std::size_t i = 0; i < known.size(); ++i)
      print(options.json, known[i], predictor.guesses(found, static_cast<std::int64_t>(i), k));
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
  if (!unused.empty()) terminal::say(stderr, "not used: " + unused);
  const std::int64_t channels = predictor.info().images.channels;
  ATH_CHECK(channels == 1 || channels == 3, "the model must take images of 1 or 3 channels, but takes {}",
            channels);
  std::size_t readable = 0;
  const auto batch = static_cast<std::size_t>(options.batch_size);
  for (std::size_t i = 0; i < files.size(); i += batch)
    readable += predict_batch(options, !bad.skip && !bad.list, predictor,
                              std::span(files).subspan(i, std::min(batch, files.size() - i)));
  const auto unreadable = static_cast<std::int64_t>(files.size() - readable);
  if (!bad.skip) {
    const bool no_folder = std::any_of(pictures.unused.begin(), pictures.unused.end(),
                                       [](const Unused& one) { return one.cause == detail::kUnreadable; });
    if (unreadable > 0 || no_folder) throw SomeUnreadable();
  } else if (unreadable > 0) {
    terminal::say(stderr, fmt::format("{} of {} files cannot be read", with_commas(unreadable),
                                      with_commas(std::ssize(files))));
    if (readable == 0 || (bad.limit >= 0 && unreadable > bad.limit)) throw SomeUnreadable();
  }
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
