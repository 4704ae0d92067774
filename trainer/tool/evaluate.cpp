#include "trainer/inference/evaluate.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "data/decoded_dataset.h"
#include "kernels/context.h"
#include "tensor/atomic_file.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "trainer/checkpoints/run_folder.h"
#include "trainer/detail/terminal.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/readable.h"
#include "trainer/tool/commands.h"
#include "trainer/tool/detail/live_line.h"
#include "trainer/tool/named_data.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

struct EvaluateOptions {
  std::string model, data, data_dir, device = "auto", svg, bad_samples = "strict";
  std::optional<std::string> json;  ///< "" and "-": standard output
  std::int64_t top = 5, worst = 10;
  int threads = 0, workers = LoaderOptions::kAuto;
};

/// The images with the preprocessing of the run's validation.
std::shared_ptr<const Dataset> as_validated(std::shared_ptr<const Dataset> stored, const ModelInfo& model) {
  if (stored->spec().height > 0 && model.shorter_side == 0) return stored;
  return std::make_shared<DecodedDataset>(
      std::move(stored),
      ImageTransform{
          .height = model.images.height, .width = model.images.width, .shorter_side = model.shorter_side});
}

bool to_file(const std::optional<std::string>& name) {
  return name && !name->empty() && *name != "-";
}

void write(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

void evaluate(const EvaluateOptions& options) {
  const auto at_least = [](const char* flag, std::int64_t low, std::int64_t value) {
    ATH_CHECK(value >= low, "{}: must be at least {}, but got {}", flag, low, value);
  };
  at_least("--top", 1, options.top);
  at_least("--worst", 0, options.worst);
  at_least("--threads", 0, options.threads);
  at_least("--workers", LoaderOptions::kAuto, options.workers);
  const BadSamples bad_samples = read_flag::bad_samples("--bad-samples", options.bad_samples);
  const fs::path given = options.model;
  const ModelFile model = load_model(model_of(given));
  const Device device = read_flag::device("--device", options.device).device;
  if (options.threads > 0) cpu_context().set_threads(options.threads);
  const ValidatedData validated =
      options.data.empty() ? open_validated(model.path, options.data_dir)
                           : ValidatedData{options.data, open_named(options.data, options.data_dir)};
  const std::shared_ptr<const Dataset> data = as_validated(validated.stored, model.info);
  LiveLine line;
  const auto all = with_commas(data->size());
  const auto say = [](const std::string& note) { terminal::say(stderr, printable(note)); };
  const Evaluation evaluation =
      athanor::evaluate(model, *data,
                        {.top = options.top,
                         .worst = options.worst,
                         .device = device,
                         .workers = options.workers,
                         .bad_samples = bad_samples,
                         .on_note = say,
                         .on_progress = [&](std::int64_t images) {
                           if (line.due())
                             line.show(fmt::format("{} of {} images", with_commas(images), all));
                         }});
  line.clear();
  const Evaluated of{model.path.string(), validated.name,
                     [&](std::int64_t sample) { return data->where(sample); }};
  const bool print_json = options.json && !to_file(options.json);
  fmt::print("{}", print_json ? json_of(evaluation, of)
                              : terminal::line_for(stdout, summary_of(model.info, evaluation, of)));
  if (to_file(options.json)) write(*options.json, json_of(evaluation, of));
  if (!options.svg.empty()) write(options.svg, svg_of(evaluation));
}

}  // namespace

void add_evaluate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("evaluate", "measure a trained classifier on labelled images");
  const auto options = std::make_shared<EvaluateOptions>();
  command->add_option("MODEL", options->model, "folder of a run, or its model.safetensors")->required();
  command->add_option(
      "--val", options->data,
      "digits, mnist, cifar10 (their test images), or whatever `athanor inspect` takes: a folder "
      "for each class, a packed file, ... [what its run validated on]");
  command->add_option("--top", options->top, "top-K accuracy [5]");
  command->add_option("--worst", options->worst, "number of worst mistakes to list [10]");
  command
      ->add_option("--json", options->json,
                   "print all figures as a JSON object, or write them to a file if one is given")
      ->expected(0, 1);
  command->add_option("--svg", options->svg, "the confusion matrix as a picture");
  command->add_option("--data-dir", options->data_dir,
                      "folder that holds mnist/ and cifar10/ [$ATHANOR_DATA_DIR, else data-cache]");
  command->add_option("--threads", options->threads, "CPU threads [all cores]");
  command->add_option("--workers", options->workers, "loader threads [auto]");
  command->add_option(
      "--bad-samples", options->bad_samples,
      "strict: an image that cannot be read is an error; skip[:LIMIT]: leave out at most LIMIT "
      "such images, one in a hundred without it; list: first read all, and name all that cannot be read "
      "[strict]");
  command->add_option("--device", options->device, "auto, cpu or cuda[:N] [auto]");
  command->callback([options] { evaluate(*options); });
}

}  // namespace athanor::tool
