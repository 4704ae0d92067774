#include "trainer/inference/quantize.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <unistd.h>

#include "kernels/cpu/context.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/checkpoints/run_folder.h"
#include "trainer/detail/terminal.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/readable.h"
#include "trainer/tool/commands.h"
#include "trainer/tool/named_data.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

struct QuantizeArguments {
  std::string model, out, calibrate, val, data_dir, fields, method = "percentile", bad_samples = "strict";
  std::optional<double> percentile;
  std::int64_t images = kCalibrationImages;
  int threads = 0;
  QuantizeModelOptions how;
};

constexpr std::size_t kLayersShown = 10;

nn::QuantizerMethod method_named(const std::string& name) {
  const auto method = nn::quantizer_method_named(name);
  ATH_CHECK(method, "--method: must be minmax, percentile or entropy, but got '{}'", name);
  return *method;
}

/// What can be known before anything is read.
void check_arguments(const QuantizeArguments& options) {
  ATH_CHECK(options.images >= 1, "--images: must be at least 1, but got {}", options.images);
  ATH_CHECK(options.threads >= 0, "--threads: must be at least 0, but got {}", options.threads);
  ATH_CHECK(options.how.max_drop >= 0, "--max-drop: must be at least 0 points, but got {}",
            options.how.max_drop);
  ATH_CHECK(!options.percentile || options.how.method == nn::QuantizerMethod::percentile,
            "--percentile: is for --method percentile alone, but the method is {}", options.method);
  ATH_CHECK(options.how.percentile > 0 && options.how.percentile <= 100,
            "--percentile: must be in (0, 100], but got {}", options.how.percentile);
  ATH_CHECK(fs::path(options.out).extension() == ".safetensors",
            "quantize: OUT must end in .safetensors, but is {}", options.out);
  std::error_code ignored;
  ATH_CHECK(!fs::exists(options.out, ignored),
            "quantize: OUT must be a new file, but {} exists: remove it, or choose another name",
            options.out);
  const fs::path folder = fs::absolute(options.out).parent_path();  // so that no long calibration is in vain
  ATH_CHECK(fs::is_directory(folder, ignored),
            "quantize: OUT must be in a folder that exists, but {} does not", folder.string());
  ATH_CHECK(::access(folder.c_str(), W_OK) == 0,
            "quantize: OUT must be in a folder that can be written to, but {} cannot", folder.string());
}

std::string layers_text(const std::vector<std::string>& layers) {
  const std::size_t shown = std::min(layers.size(), kLayersShown);
  return fmt::format("{}{}",
                     fmt::join(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     shown < layers.size() ? ", ..." : "");
}

/// "percentile 99.99"
std::string method_text(const QuantizeModelOptions& how) {
  const std::string name = name_of(how.method);
  return how.method == nn::QuantizerMethod::percentile ? fmt::format("{} {}", name, how.percentile) : name;
}

void row(const char* what, const std::string& text) {
  terminal::say(stdout, fmt::format("{:<11} {}", what, printable(text)));
}

void tell(const QuantizeArguments& options, const QuantizedModel& made, std::int64_t calibrated,
          std::int64_t of, const std::string& measured) {
  const std::vector<std::string> in_int8 = made.network->products_in(DType::i8),
                                 in_f32 = made.network->products_in(DType::f32);
  row("calibrated", fmt::format("on {} of {} images of {}, ranges by {}", with_commas(calibrated),
                                with_commas(of), options.calibrate, method_text(options.how)));
  if (!made.layers.empty()) {
    fmt::print("{:<11} {:<32} {:>8}\n", "layers", "alone in int8", "error");
    for (std::size_t i = 0; i < std::min(made.layers.size(), kLayersShown + made.chosen.size()); ++i)
      fmt::print("{:<11} {:<32} {:>6.2f} %{}\n", "", printable(made.layers[i].layer),
                 100 * made.layers[i].error, i < made.chosen.size() ? "   stays in f32" : "");
  }
  row("in int8", fmt::format("{} of {} layers", in_int8.size(), in_int8.size() + in_f32.size()));
  if (!in_f32.empty()) row("in f32", layers_text(in_f32));
  const std::string off = fmt::format("results differ by {:.2f} % of their deviation", 100 * made.error);
  row("agreement",
      std::isnan(made.agreement)
          ? off
          : fmt::format("{:.2f} % of these images predicted as in f32; {}", 100 * made.agreement, off));
  row("accuracy",
      fmt::format("{} {:.2f} % in f32, {:.2f} % in int8, on {} images of {}", made.before->score_name(),
                  made.before->score(), made.after->score(), with_commas(made.after->images()), measured));
}

void quantize(QuantizeArguments& options) {
  options.how.method = method_named(options.method);
  if (options.percentile) options.how.percentile = *options.percentile;
  check_arguments(options);
  QuantizeModelOptions& how = options.how;
  how.evaluate.bad_samples = read_flag::bad_samples("--bad-samples", options.bad_samples);
  const ModelFile model = load_model(model_of(options.model));
  if (options.threads > 0) cpu_context().set_threads(options.threads);
  const auto images_of = [&](const std::string& data, Split split) {
    OpenOptions labels = labels_for(model, options.fields, how.evaluate.bad_samples);
    labels.unlabelled = split == Split::train && !options.val.empty();  // ranges need images alone
    return as_validated(open_named(data, options.data_dir, labels, split), model.info);
  };
  const std::shared_ptr<const Dataset> all = images_of(options.calibrate, Split::train);
  const std::shared_ptr<const Dataset> calibration = spread_over(all, options.images);
  const auto measured = options.val.empty() ? calibration : images_of(options.val, Split::test);
  how.evaluate.on_note = [](const std::string& note) { terminal::say(stderr, printable(note)); };
  row("model", fmt::format("{}: {} of {}", model.path.string(), model.info.model, model.info.program));
  const QuantizedModel made = quantize_model(model, *calibration, *measured, how);
  save_model(options.out, made.file.info, made.file.weights);
  tell(options, made, calibration->size(), all->size(),
       options.val.empty() ? options.calibrate : options.val);
  fmt::print("\nsaved       {}   {}, {} before\n", printable(options.out),
             byte_size(static_cast<double>(fs::file_size(options.out))),
             byte_size(static_cast<double>(fs::file_size(model.path))));
  fmt::print("next        athanor evaluate {} --val DATA --max-drop {}\n",
             printable(terminal::quoted(options.out)), how.max_drop);
}

}  // namespace

void add_quantize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("quantize", "make a model of 8-bit integers of a trained model");
  const auto options = std::make_shared<QuantizeArguments>();
  command->add_option("MODEL", options->model, "folder of a run, or its model.safetensors")->required();
  command->add_option("OUT", options->out, "file to write: .safetensors")->required();
  command
      ->add_option("--calibrate", options->calibrate,
                   "images like those of later use: digits, mnist, cifar10 (their training images), or "
                   "whatever `athanor inspect` takes; with --val also a folder of images without labels")
      ->required();
  command->add_option("--images", options->images, "images of them to use, spread evenly [512]");
  command->add_option("--method", options->method,
                      "ranges of activations: minmax: all numbers; percentile: all but the largest; entropy: "
                      "the range that loses least information [percentile]");
  command->add_option("--percentile", options->percentile,
                      "with --method percentile: the percentage of numbers in the range [99.99]");
  command->add_option("--keep", options->how.keep_f32, "layers that stay in f32: conv1,fc")->delimiter(',');
  command->add_option("--max-drop", options->how.max_drop,
                      "percentage points of accuracy that may be lost; the layers with the largest errors "
                      "stay in f32 until it is no more [1]");
  command->add_option("--val", options->val,
                      "images on which the accuracy is measured, as for evaluate [those of --calibrate]");
  command->add_option("--fields", options->fields,
                      "image=NAME,label=NAME, as in the train programs [of several labels and of values, as "
                      "in its run]");
  command->add_option("--data-dir", options->data_dir,
                      "folder that holds mnist/ and cifar10/ [$ATHANOR_DATA_DIR, else data-cache]");
  command->add_option("--bad-samples", options->bad_samples,
                      "strict, skip[:LIMIT] or list, as for evaluate [strict]");
  command->add_option("--threads", options->threads, "CPU threads [all cores]");
  command->callback([options] { quantize(*options); });
}

}  // namespace athanor::tool
