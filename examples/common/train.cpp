#include "common/train.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/ranges.h>

#include "data/decoded_dataset.h"
#include "data/synthetic.h"
#include "kernels/cpu/context.h"
#include "nn/dropout.h"
#include "nn/layer_decay.h"
#include "nn/models/model.h"
#include "nn/stochastic_depth.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/checkpoints/run_folder.h"
#include "trainer/checkpoints/split_file.h"
#include "trainer/detail/terminal.h"
#include "trainer/inference/evaluate.h"
#include "trainer/inference/model_file.h"
#include "trainer/inference/named_weights.h"
#include "trainer/inference/weights_file.h"
#include "trainer/run_main.h"
#include "trainer/signals.h"
#include "trainer/train_main.h"

namespace athanor::examples {
namespace {

void begin_with(nn::Module& model, const TrainerConfig& config, const Dataset& data, bool tell) {
  const std::filesystem::path file =  // a run's model, if it is a folder
      model_of(find_weights(config.pretrained, config.model, "--pretrained").path);
  nn::Pretrained taken;
  try {
    taken = load_weights(file, model, {.reset_head = config.reset_head, .averages = config.pretrained_ema},
                         data.class_names());
  } catch (const ArgumentError& error) {
    detail::fail<>("--pretrained: {}", error.what());
  }
  if (!tell) return;
  std::string line = fmt::format("pretrained: {} tensors from {}", taken.loaded, file.string());
  if (const std::string choice = choice_of(taken); !choice.empty()) line += ", " + choice;
  if (!taken.fresh.empty()) {
    const std::int64_t classes = data.spec().classes;
    const bool more_or_fewer = taken.classes != 0 && taken.classes != classes;
    line += fmt::format("; new, for {} classes{}: {}", classes,
                        more_or_fewer         ? fmt::format(" instead of {}", taken.classes)
                        : taken.other_classes ? " with other names"
                                              : "",
                        fmt::join(taken.fresh, ", "));
  }
  terminal::say(stdout, printable(line));
}

/// --dropout.
void set_dropout(nn::Module& model, const TrainerConfig& config) {
  if (!config.dropout) return;
  bool any = false;
  model.for_each_module([&](nn::Module& module, const std::vector<Parameter>&) {
    auto* const dropout = dynamic_cast<nn::Dropout*>(&module);
    if (dropout) dropout->set_p(static_cast<float>(*config.dropout));
    any |= dropout != nullptr;
  });
  ATH_CHECK(any || *config.dropout == 0, "--dropout: {} must have dropout layers, but has none",
            config.model);
}

std::string text_of(const ModelFile& model, const TrainerConfig& config, const Dataset& images,
                    const std::string& name) {
  if (config.threads > 0) cpu_context().set_threads(config.threads);
  const std::unique_ptr<Results> results =
      evaluate_task(*make_network(model), model, images,
                    {.device = config.device,
                     .workers = config.workers,
                     .tta = config.tta != TestViews::none ? std::optional(config.tta) : std::nullopt,
                     .bad_samples = config.bad_samples,
                     .on_note = [](const std::string& note) { terminal::say(stderr, printable(note)); }});
  const auto where = [&](std::int64_t sample) { return images.where(sample); };
  return terminal::line_for(stdout, summary_of(model.info, *results, {model.path.string(), name, where}));
}

/// --validate-only: evaluates the weights of a run.
int validate(const TrainerConfig& config, const Dataset& held_out) {
  ATH_CHECK(!config.pretrained.empty() || !config.run_dir.empty() || !config.run_root.empty(),
            "--validate-only: needs --pretrained FILE, the model of a run, or --run-dir DIR");
  std::filesystem::path run = config.run_dir;
  if (run.empty()) {
    const std::vector<std::filesystem::path> all = run_folders(config.run_root);  // newest first
    run = all.empty() ? config.run_root / "latest" : all.front();
  }
  if (!config.pretrained.empty()) run = find_weights(config.pretrained, config.model, "--pretrained").path;
  const ModelFile model = load_model(model_of(run));
  fmt::print("{}", text_of(model, config, held_out, "the validation images of " + config.program));
  return kExitDone;
}

/// --test: evaluates the final weights on images that influenced no choice.
void test_at_the_end(const TrainerConfig& config, const FitReport& report, const Dataset& images) {
  if (report.model.empty()) return;
  fmt::print("\n{}", text_of(load_model(report.model), config, images, config.test_data.string()));
}

/// Writes which samples are in which set into the run's folder.
class KeepSplit final : public Callback {
 public:
  explicit KeepSplit(const Data& data) : data_(data) {}
  void on_run_dir(Trainer&, const std::filesystem::path& run_dir) override {
    save_split(run_dir, *data_.train, *data_.test);
  }
  bool reads_weights() const override { return false; }

 private:
  const Data& data_;
};

/// --drop-path: from 0 in the first block to that probability in the last.
void set_drop_path(nn::Module& model, const TrainerConfig& config) {
  if (!config.drop_path) return;
  std::vector<nn::StochasticDepth*> all;
  model.for_each_module([&](nn::Module& module, const std::vector<Parameter>&) {
    if (auto* const one = dynamic_cast<nn::StochasticDepth*>(&module)) all.push_back(one);
  });
  ATH_CHECK(!all.empty() || *config.drop_path == 0,
            "--drop-path: {} must have layers of stochastic depth, but has none", config.model);
  const double last = static_cast<double>(std::max<std::ptrdiff_t>(std::ssize(all) - 1, 1));
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i]->set_p(*config.drop_path * static_cast<double>(i) / last);
}

/// Images of several sizes need a network whose weights do not depend on the size.
void check_sizes(const TrainerConfig& config, const nn::Module& model, const ImageSpec& spec) {
  const auto shapes_of = [](const nn::Module& network) {
    std::vector<Shape> shapes;
    for (const Parameter& one : network.parameters()) shapes.push_back(one.tensor.shape());
    return shapes;
  };
  const auto check_size = [&](const char* flag, const ImageSize& size) {
    if (size == ImageSize{} || size == ImageSize{spec.height, spec.width}) return;
    const auto other = nn::make_model(config.model, {spec.classes, spec.channels, size.height, size.width});
    ATH_CHECK(shapes_of(*other) == shapes_of(model),
              "{}: the weights of {} are for images of one size, but got {}x{} and {}x{} pixels; choose a "
              "network for all sizes, such as resnet50",
              flag, config.model, size.height, size.width, spec.height, spec.width);
  };
  for (const SizeFrom& one : config.image_sizes) check_size("--image-size", one.size);
  check_size("--val-image-size", config.val_image_size);
}

FitReport fit(Trainer& trainer, const Data& data) {
  const TrainerConfig& config = trainer.config();
  const ImageSpec& spec = data.train->spec();
  const auto model =
      nn::make_model(config.model, {spec.classes, spec.channels, spec.height, spec.width}, config.seed);
  check_sizes(config, *model, spec);
  set_dropout(*model, config);
  set_drop_path(*model, config);
  if (config.layer_decay < 1) nn::set_layer_decay(*model, config.layer_decay);
  if (!config.pretrained.empty()) begin_with(*model, config, *data.train, trainer.rank() == 0);
  if (data.is_split) trainer.add(std::make_unique<KeepSplit>(data));
  FitReport report = trainer.fit(*model, *data.train, *data.test);
  if (data.last && trainer.rank() == 0) test_at_the_end(config, report, *data.last);
  return report;
}

/// --data synthetic: learnable images of the model's usual size.
Data made_up(const TrainerConfig& config) {
  const nn::ModelOptions usual = nn::model_options(config.model);
  const ImageSize own{usual.image_size, usual.image_width};
  const auto [height, width] = config.image_size > 0 ? config.size_of_images() : own;
  const ImageSpec spec{height, width, usual.in_channels, usual.classes};
  Data data{synthetic(spec, config.synthetic_images, 1),
            synthetic(spec, std::max<std::int64_t>(1, config.synthetic_images / 5), 2)};
  if (config.image_sizes.empty() && config.val_image_size == ImageSize{}) return data;
  const auto resized = [](std::unique_ptr<Dataset> images, const ImageSize& to) {
    return std::make_unique<DecodedDataset>(std::move(images),
                                            ImageTransform{.height = to.height, .width = to.width});
  };
  return {resized(std::move(data.train), {height, width}),
          resized(std::move(data.test), config.validated_image_size())};
}

FlagValue* find_flag(std::vector<FlagValue>& flags, const std::string& name) {
  const auto found = std::find_if(flags.begin(), flags.end(), [&](auto& flag) { return flag.name == name; });
  return found == flags.end() ? nullptr : &*found;
}

}  // namespace

bool is_default(const TrainerConfig& config, const std::string& flag) {
  auto flags = config.flags;
  const FlagValue* const found = find_flag(flags, flag);
  return found && found->from == "default";
}

bool is_typed(const TrainerConfig& config, const std::string& flag) {
  auto flags = config.flags;
  const FlagValue* const found = find_flag(flags, flag);
  return found && found->from == "flag";
}

void record_default(TrainerConfig& config, const std::string& flag, const std::string& value) {
  if (FlagValue* const found = find_flag(config.flags, flag)) found->value = value;
}

int train(int argc, char** argv, TrainerConfig defaults,
          const std::function<Data(const TrainerConfig&)>& data_of_program,
          const std::function<void(TrainerConfig&, const Dataset& train)>& fit_to_data) {
  defaults.models = nn::model_names();
  const auto data = [&](const TrainerConfig& config) {
    return config.synthetic_images > 0 ? made_up(config) : data_of_program(config);
  };
  return run_main(argc, argv, [&](int count, char** arguments) {
    say_what_ended();
    TrainerConfig config = parse_flags(count, arguments, defaults);
    ATH_CHECK(config.test_data.empty() || !config.run_dir.empty() || !config.run_root.empty(),
              "--test: evaluates the model that the run saves; cannot be combined with --run-dir none");
    if (config.validate_only) return validate(config, *data(config).test);
    std::optional<Data> opened;
    if (fit_to_data) {
      opened = data(config);
      config.unused_data = opened->unused;
      fit_to_data(config, *opened->train);
    }
    return train_on_ranks(config, arguments, dist::networks(), [&](Trainer& trainer) {
      if (!opened) opened = data(trainer.config());
      return fit(trainer, *opened);
    });
  });
}

}  // namespace athanor::examples
