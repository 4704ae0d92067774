#include "trainer/inference/evaluate.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "data/decoded_dataset.h"
#include "kernels/cpu/context.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/io/atomic_file.h"
#include "trainer/detail/terminal.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/readable.h"
#include "trainer/tool/commands.h"
#include "trainer/tool/named_data.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string model, data, data_dir, fields, device = "auto", svg, bad_samples = "strict", tta;
  std::optional<std::string> json;  ///< "" and "-": standard output
  int threads = 0;
  EvaluateOptions how;
};

/// The images with the preprocessing of the run's validation.
std::shared_ptr<const Dataset> as_validated(std::shared_ptr<const Dataset> stored, const ModelInfo& model) {
  const ImageTransform transform = resizing(model);
  const bool covers =
      transform.mode == ResizeMode::crop && transform.shorter_side == 0 && transform.crop_share == 1;
  if (stored->spec().height > 0 && covers) return stored;
  return std::make_shared<DecodedDataset>(std::move(stored), transform);
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
  at_least("--workers", LoaderOptions::kAuto, how.workers);
  how.bad_samples = read_flag::bad_samples("--bad-samples", options.bad_samples);
  if (!options.tta.empty()) how.tta = read_flag::test_views()("--tta", options.tta);
  const OpenModel model = open_model(options.model);
  const ModelInfo& info = model.file.info;
  ATH_CHECK(options.svg.empty() || info.task == LabelKind::classes,
            "--svg: draws the confusion matrix of classes, but the model is for {}", name_of(info.task));
  how.device = read_flag::device("--device", options.device).device;
  if (options.threads > 0) cpu_context().set_threads(options.threads);
  OpenOptions labels{
      .fields = options.fields, .labels = info.task, .keep_damaged = how.bad_samples.keeps_going()};
  if (info.task != LabelKind::classes) {
    labels.label_names = info.class_names;
    if (labels.fields.empty()) labels.fields = fields_of_run(model.file.path);
  }
  const ValidatedData validated =
      options.data.empty() ? open_validated(model.file.path, options.data_dir, labels)
                           : ValidatedData{options.data, open_named(options.data, options.data_dir, labels)};
  const std::shared_ptr<const Dataset> data = as_validated(validated.stored, info);
  terminal::LiveLine line;
  const auto all = with_commas(data->size());
  how.on_note = [](const std::string& note) { terminal::say(stderr, printable(note)); };
  how.on_progress = [&](std::int64_t images) {
    if (line.due()) line.show(fmt::format("{} of {} images", with_commas(images), all));
  };
  const std::unique_ptr<Results> results = evaluate_task(*model.network, model.file, *data, how);
  line.clear();
  const Evaluated of{model.file.path.string(), validated.name,
                     [&](std::int64_t sample) { return data->where(sample); }};
  const bool print_json = options.json && !to_file(options.json);
  fmt::print("{}",
             print_json ? results->json(of) : terminal::line_for(stdout, summary_of(info, *results, of)));
  if (to_file(options.json)) write_atomically(*options.json, results->json(of));
  if (!options.svg.empty()) write_atomically(options.svg, results->svg());
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
