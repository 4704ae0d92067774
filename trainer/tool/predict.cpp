#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

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
  bool json = false, csv = false;
  std::string bad_samples = "list", tta = "none", precision = "f32";
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

std::string percent(const Guess& one) {
  return fmt::format("{:.1f} %", 100 * double{one.probability});
}

std::string text_of(LabelKind task, const std::vector<Guess>& guesses) {
  std::vector<std::string> all;
  for (const Guess& one : guesses) {
    if (task == LabelKind::values) {
      all.push_back(fmt::format("{} {:.6g}", printable(one.name), one.probability));
    } else if (task == LabelKind::classes || one.present) {
      all.push_back(fmt::format("{} ({})", printable(one.name), percent(one)));
    }
  }
  if (!all.empty()) return fmt::format("{}", fmt::join(all, ", "));
  const Guess& first = guesses.front();
  return fmt::format("none; most probable is {} ({})", printable(first.name), percent(first));
}

std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

/// A row of CSV for each picture. Of a classifier "image", then "class", "probability", "class_2", ...; of
/// several labels "image", "labels", separated by semicolons, then a column of probabilities for each class;
/// of numbers "image", then a column for each.
class Csv {
 public:
  Csv(const Predictor& predictor, std::int64_t top) : task_(predictor.info().task) {
    std::string line = "image";
    if (task_ == LabelKind::multilabel) line += ",labels";
    if (task_ != LabelKind::classes) top = predictor.info().images.classes;
    for (std::int64_t i = 0; i < top; ++i) {
      const std::string number = i == 0 ? "" : fmt::format("_{}", i + 1);
      line += task_ == LabelKind::classes ? fmt::format(",class{0},probability{0}", number)
                                          : ',' + cell(predictor.class_name(i));
    }
    fmt::print("{}\n", line);
  }

  std::string line(const fs::path& file, std::vector<Guess> guesses) const {
    std::string text = cell(file.string()), labels;
    for (const Guess& one : guesses)
      if (one.present) labels += (labels.empty() ? "" : ";") + one.name;
    if (task_ == LabelKind::multilabel) text += ',' + cell(labels);
    if (task_ != LabelKind::classes)
      std::ranges::sort(guesses, {}, [](const Guess& one) { return one.index; });
    for (const Guess& one : guesses) {
      if (task_ == LabelKind::classes) text += ',' + cell(one.name);
      text += fmt::format(",{}", one.probability);
    }
    return text;
  }

 private:
  LabelKind task_;
};

void print(const PredictOptions& options, const Predictor& predictor, const std::optional<Csv>& csv,
           const fs::path& file, const std::vector<Guess>& guesses) {
  const LabelKind task = predictor.info().task;
  if (options.json) {
    nlohmann::ordered_json json{{"image", file.string()}};
    json.update(json_of(task, guesses));
    fmt::print("{}", line_of(json));
  } else if (csv) {
    fmt::print("{}\n", csv->line(file, guesses));
  } else {
    fmt::print("{}: {}\n", printable(file.string()), text_of(task, guesses));
  }
}

/// Predicts for all readable files; stderr names the others, or `strict` makes the first an error. Returns
/// the number of readable ones.
std::size_t predict_batch(const PredictOptions& options, bool strict, const Predictor& predictor,
                          const std::optional<Csv>& csv, std::span<const fs::path> files) {
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
      print(options, predictor, csv, known[i], predictor.guesses(found, static_cast<std::int64_t>(i), k));
  }
  return known.size();
}

void predict(const PredictOptions& options) {
  ATH_CHECK(options.top >= 1, "--top: must be at least 1, but got {}", options.top);
  ATH_CHECK(!options.json || !options.csv, "--csv: cannot be combined with --json");
  ATH_CHECK(options.batch_size >= 1 && options.batch_size <= 4096,
            "--batch-size: must be in [1, 4096], but got {}", options.batch_size);
  const BadSamples bad = read_flag::bad_samples("--bad-samples", options.bad_samples);
  const Precision precision = read_flag::prediction_precision("--precision", options.precision);
  const Predictor predictor(options.model, kCpu, read_flag::test_views()("--tta", options.tta), precision);
  if (const std::string note = no_faster_than_f32(precision, kCpu); !note.empty())
    terminal::say(stderr, "--precision: " + note);
  const Pictures pictures = pictures_of(options.pictures);
  const std::vector<fs::path>& files = pictures.files;
  const std::string unused = text_of(pictures.unused);
  ATH_CHECK(!files.empty(), "predict: needs a JPEG, PNG or WebP, but found none in {}{}",
            fmt::join(options.pictures, ", "), unused.empty() ? "" : ", only " + unused);
  if (!unused.empty()) terminal::say(stderr, "not used: " + unused);
  const std::int64_t channels = predictor.info().images.channels;
  ATH_CHECK(channels == 1 || channels == 3, "the model must take images of 1 or 3 channels, but takes {}",
            channels);
  std::optional<Csv> csv;
  if (options.csv) csv.emplace(predictor, std::min(options.top, predictor.info().images.classes));
  std::size_t readable = 0;
  const auto batch = static_cast<std::size_t>(options.batch_size);
  for (std::size_t i = 0; i < files.size(); i += batch)
    readable += predict_batch(options, !bad.skip && !bad.list, predictor, csv,
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
  CLI::App* command =
      app.add_subcommand("predict", "classify, label or measure pictures with a trained model");
  const auto options = std::make_shared<PredictOptions>();
  command->add_option("MODEL", options->model, "folder of a run, or its model.safetensors")->required();
  command
      ->add_option("IMAGE", options->pictures,
                   "JPEG, PNG or WebP files, folders of them, or - for a list on stdin")
      ->required();
  command->add_option("--top", options->top, "number of most probable classes that a classifier prints [3]");
  command->add_option("--batch-size", options->batch_size, "images at a time [32]");
  command->add_option("--tta", options->tta,
                      "views of each picture whose logits are averaged: none, flip or six [none]");
  command->add_option("--precision", options->precision, "f32, bf16 or f16 [f32]");
  command->add_flag("--json", options->json, "a JSON object per line and picture");
  command->add_flag("--csv", options->csv, "a table with a row per picture");
  command->add_option(
      "--bad-samples", options->bad_samples,
      "list: name each file that cannot be read, and end with code 2; skip[:LIMIT]: name them, "
      "and end with code 0 unless there are more than LIMIT; strict: the first ends it [list]");
  command->callback([options] { predict(*options); });
}

}  // namespace athanor::tool
