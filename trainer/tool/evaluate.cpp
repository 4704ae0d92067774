#include "trainer/inference/evaluate.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "kernels/cpu/context.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/io/atomic_file.h"
#include "trainer/checkpoints/run_folder.h"
#include "trainer/detail/terminal.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/inference/predictor.h"
#include "trainer/inference/quantize.h"
#include "trainer/readable.h"
#include "trainer/tool/commands.h"
#include "trainer/tool/named_data.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string model, data, data_dir, fields, device = "auto", svg, bad_samples = "strict", tta, precision;
  std::optional<std::string> json;  ///< "" and "-": standard output
  int threads = 0;
  EvaluateOptions how;
  std::optional<double> max_drop;
  std::string float_model;
};

constexpr std::size_t kLayersNamed = 3;

/// What a quantized model was made of.
ModelFile float_model_of(const ModelFile& model, const std::string& given) {
  const ModelInfo& info = model.info;
  ATH_CHECK(info.is_quantized(),
            "--max-drop: compares a quantized model with its float model, but {} is in {}",
            model.path.string(), name_of(info.precision));
  const fs::path path = given.empty() ? info.float_model : given;
  std::error_code ignored;
  ATH_CHECK(!given.empty() || fs::exists(path, ignored),
            "--float: must name the float model of {}, because {} is no longer there", model.path.string(),
            path.empty() ? "the one it was made of" : path.string());
  ModelFile found = load_model(model_of(path));
  ATH_CHECK(!found.info.is_quantized() && found.info.model == info.model && found.info.images == info.images,
            "--float: must be a float {} with images {}x{}x{} and {}, as {} has, but {} is another model",
            info.model, info.images.height, info.images.width, info.images.channels, counted_outputs(info),
            model.path.string(), found.path.string());
  return found;
}

/// Prints what the quantized model loses. Throws ArgumentError if that is more than --max-drop, naming the
/// layers to look at.
void compare(const Arguments& options, const OpenModel& model, const ModelFile& in_floats, double before,
             const Dataset& data, const Results& results, std::FILE* out) {
  const double drop = before - results.score();
  terminal::say(out, fmt::format("{}: {} {:.2f} % in f32, {:.2f} % in {}: a drop of {:.2f} points",
                                 printable(in_floats.path.string()), results.score_name(), before,
                                 results.score(), model.file.info.quantized, drop));
  if (!options.max_drop || !(drop > *options.max_drop)) return;
  const auto& network = dynamic_cast<const nn::QuantizedNetwork&>(*model.network);
  std::vector<LayerError> errors = layer_errors(network, in_floats, data, options.how.bad_samples);
  if (errors.size() > kLayersNamed) errors.resize(kLayersNamed);
  std::vector<std::string> layers, names;
  for (const LayerError& one : errors) {
    layers.push_back(fmt::format("{} ({:.2f} %)", one.layer, 100 * one.error));
    names.push_back(one.layer);
  }
  detail::fail<>(
      "evaluate: {} may drop by at most {} points, but drops by {:.2f}; the layers with the largest errors "
      "are "
      "{}: athanor quantize --keep {} leaves them in f32",
      results.score_name(), *options.max_drop, drop, fmt::join(layers, ", "), fmt::join(names, ","));
}

bool to_file(const std::optional<std::string>& name) {
  return name && !name->empty() && *name != "-";
}

void evaluate(Arguments& options) {
  EvaluateOptions& how = options.how;
  const auto at_least = [](const char* flag, std::int64_t low, std::int64_t value) {
    ATH_CHECK(value >= low, "{}: must be at least {}, but got {}", flag, low, value);
  };
  at_least("--top", 1, how.top);
  at_least("--worst", 0, how.worst);
  at_least("--threads", 0, options.threads);
  ATH_CHECK(!options.max_drop || *options.max_drop >= 0, "--max-drop: must be at least 0 points, but got {}",
            *options.max_drop);
  at_least("--workers", LoaderOptions::kAuto, how.workers);
  how.bad_samples = read_flag::bad_samples("--bad-samples", options.bad_samples);
  if (!options.tta.empty()) how.tta = read_flag::test_views()("--tta", options.tta);
  if (!options.precision.empty())
    how.precision = read_flag::prediction_precision("--precision", options.precision);
  const OpenModel model = open_model(options.model);
  const ModelInfo& info = model.file.info;
  ATH_CHECK(options.svg.empty() || info.task == LabelKind::classes,
            "--svg: draws the confusion matrix of classes, but the model is for {}", name_of(info.task));
  std::optional<ModelFile> in_floats;
  if (options.max_drop || !options.float_model.empty())
    in_floats = float_model_of(model.file, options.float_model);
  how.device = read_flag::device("--device", options.device).device;
  if (options.threads > 0) cpu_context().set_threads(options.threads);
  const OpenOptions labels = labels_for(model.file, options.fields, how.bad_samples);
  const ValidatedData validated =
      options.data.empty() ? open_validated(run_of(model.file), options.data_dir, labels)
                           : ValidatedData{options.data, open_named(options.data, options.data_dir, labels)};
  const std::shared_ptr<const Dataset> data = as_validated(validated.stored, info);
  terminal::LiveLine line;
  const auto all = with_commas(data->size());
  how.on_note = [](const std::string& note) { terminal::say(stderr, printable(note)); };
  if (const std::string note = no_faster_than_f32(how.precision.value_or(Precision::f32), how.device);
      !note.empty())
    how.on_note("--precision: " + note);
  how.on_progress = [&](std::int64_t images) {
    if (line.due()) line.show(fmt::format("{} of {} images", with_commas(images), all));
  };
  const std::unique_ptr<Results> results = evaluate_task(*model.network, model.file, *data, how);
  line.clear();
  Evaluated of{model.file.path.string(), validated.name,
               [&](std::int64_t sample) { return data->where(sample); },
               how.precision ? std::string(name_of(*how.precision)) : ""};
  if (in_floats) {
    EvaluateOptions quietly = how;
    quietly.on_note = {};
    quietly.on_progress = {};
    of.float_model = in_floats->path.string();
    of.float_score = evaluate_in_f32(*in_floats, *data, quietly)->score();
  }
  const bool print_json = options.json && !to_file(options.json);
  fmt::print("{}",
             print_json ? results->json(of) : terminal::line_for(stdout, summary_of(info, *results, of)));
  if (to_file(options.json)) write_atomically(*options.json, results->json(of));
  if (!options.svg.empty()) write_atomically(options.svg, results->svg());
  if (in_floats)
    compare(options, model, *in_floats, of.float_score, *data, *results, print_json ? stderr : stdout);
}

}  // namespace

void add_evaluate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("evaluate", "measure a trained model on labelled images");
  const auto options = std::make_shared<Arguments>();
  command->add_option("MODEL", options->model, "folder of a run, or its model.safetensors")->required();
  command->add_option(
      "--val", options->data,
      "digits, mnist, cifar10 (their test images), or whatever `athanor inspect` takes: a folder "
      "for each class, a packed file, ... [what its run validated on]");
  command->add_option(
      "--fields", options->fields,
      "image=NAME,label=NAME, as in the train programs [of several labels and of values, as in "
      "its run]");
  command->add_option("--top", options->how.top, "top-K accuracy [5]");
  command->add_option("--worst", options->how.worst, "number of worst mistakes to list [10]");
  command
      ->add_option("--json", options->json,
                   "print all figures as a JSON object, or write them to a file if one is given")
      ->expected(0, 1);
  command->add_option("--svg", options->svg, "the confusion matrix as a picture");
  command->add_option("--data-dir", options->data_dir,
                      "folder that holds mnist/ and cifar10/ [$ATHANOR_DATA_DIR, else data-cache]");
  command->add_option(
      "--tta", options->tta,
      "views of each image whose logits are averaged: none, flip or six [as its run validated]");
  command->add_option("--precision", options->precision,
                      "f32, bf16 or f16: compute as predict and serve do in it [as its run validated]");
  command->add_option("--max-drop", options->max_drop,
                      "of a quantized model: percentage points of accuracy that it may have less than its "
                      "float model; more is an error that names the layers to blame");
  command->add_option("--float", options->float_model,
                      "of a quantized model: its float model, to compare with [the one it was made of]");
  command->add_option("--threads", options->threads, "CPU threads [all cores]");
  command->add_option("--workers", options->how.workers, "loader threads [auto]");
  command->add_option(
      "--bad-samples", options->bad_samples,
      "strict: an image that cannot be read is an error; skip[:LIMIT]: leave out at most LIMIT "
      "such images, one in a hundred without it; list: first read all, and name all that cannot be read "
      "[strict]");
  command->add_option("--device", options->device, "auto, cpu or cuda[:N] [auto]");
  command->callback([options] { evaluate(*options); });
}

}  // namespace athanor::tool
