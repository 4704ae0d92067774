#include <algorithm>
#include <cstdlib>

#include <CLI/CLI.hpp>

#include "tensor/error.h"
#include "tensor/nearest.h"
#include "trainer/choose_device.h"
#include "trainer/config.h"
#include "trainer/detail/flag_values.h"
#include "trainer/detail/terminal.h"

namespace athanor {
namespace {

using namespace flag_values;

// Of --help: flags, then what they mean.
constexpr int kNamesColumns = 30, kHelpColumns = terminal::kColumns - kNamesColumns;

[[noreturn]] void not_built(const std::string& flag, const std::string& value, const char* instead) {
  detail::fail<>("{} {}: not part of this version; {}", flag, value, instead);
}

/// Adds one option whose text `read` takes. CLI11 splits and matches; what is said about mistakes is ours.
class Flags {
 public:
  Flags(CLI::App& app, std::vector<std::string>& names) : app_(app), names_(names) {}

  template <class F>
  void value(const std::string& names, const char* shown, const std::string& help, F read) {
    const std::string flag = remember(names);
    app_.add_option(
            names,
            [flag, read](const CLI::results_t& texts) {
              read(flag, texts.at(0));
              return true;
            },
            terminal::wrapped(help, kHelpColumns, 0))
        ->type_name(shown)
        ->take_last()
        ->group(group_);
  }
  void on(const std::string& names, const std::string& help, bool& target) {
    remember(names);
    app_.add_flag(names, target, terminal::wrapped(help, kHelpColumns, 0))->group(group_);
  }
  /// The heading in --help of those added from now on.
  void group(const char* heading) { group_ = heading; }

 private:
  /// Keeps all names for suggestions; returns the first.
  std::string remember(const std::string& names) {
    std::string first;
    for (std::size_t at = 0; at < names.size();) {
      const std::size_t end = std::min(names.find(',', at), names.size());
      names_.push_back(names.substr(at, end - at));
      if (first.empty()) first = names_.back();
      at = end + 1;
    }
    return first;
  }

  CLI::App& app_;
  std::vector<std::string>& names_;
  std::string group_;
};

void add_training(Flags& flags, TrainerConfig& config) {
  flags.group("Training");
  if (!config.models.empty()) {
    flags.value("--model", "NAME", fmt::format("one of {} [{}]", fmt::join(config.models, " "), config.model),
                [&](const std::string& flag, const std::string& text) {
                  ATH_CHECK(
                      std::find(config.models.begin(), config.models.end(), text) != config.models.end(),
                      "{}: must be one of {}, but got '{}'{}", flag, fmt::join(config.models, " "), text,
                      did_you_mean(text, config.models));
                  config.model = text;
                });
  }
  flags.value("--epochs,--max-epochs", "N", fmt::format("passes over the training set [{}]", config.epochs),
              [&](auto& flag, auto& text) { config.epochs = whole(flag, text, 1); });
  flags.value("--max-steps", "N", "stop after N steps, skipped ones included [no limit]",
              [&](auto& flag, auto& text) { config.max_steps = text == "-1" ? -1 : whole(flag, text, 1); });
  flags.value("--max-time", "SECONDS",
              "stop after SECONDS of training, including time before --resume [no limit]",
              [&](auto& flag, auto& text) { config.max_time_s = positive(flag, text, 1e-6, 1e9); });
  flags.value("--batch-size", "N",
              fmt::format("images per backward pass, of all devices together [{}]", config.batch_size),
              [&](auto& flag, auto& text) { config.batch_size = whole(flag, text, 1); });
  flags.value("--val-batch-size", "N", "images per batch of validation [the larger of --batch-size and 256]",
              [&](auto& flag, auto& text) { config.val_batch_size = whole(flag, text, 1); });
  flags.value("--lr", "RATE", fmt::format("highest learning rate [{}]", config.lr),
              [&](auto& flag, auto& text) { config.lr = positive(flag, text); });
  flags.value("--accumulate,--accumulate-grad-batches", "N", "backward passes per step [1]",
              [&](auto& flag, auto& text) { config.accumulate = whole(flag, text, 1, 1'000'000); });
  flags.value("--clip-norm,--gradient-clip-val", "X", "limit of the gradients' norm [none]",
              [&](auto& flag, auto& text) { config.clip_norm = positive(flag, text, 1e-30, 1e15); });
  flags.value("--clip-value", "X", "limit of each gradient, after --clip-norm [none]",
              [&](auto& flag, auto& text) { config.clip_value = positive(flag, text, 1e-30, 1e15); });
  flags.value("--skip-outliers", "Z", "skip steps whose gradient norm is Z deviations above its mean [none]",
              [&](auto& flag, auto& text) { config.skip_outliers = positive(flag, text, 1e-3, 1e6); });
  flags.value("--ema", "DECAY", "validate and keep a running average of the weights [none]",
              [&](auto& flag, auto& text) {
                config.ema_decay = positive(flag, text);
                ATH_CHECK(config.ema_decay < 1, "{}: must be below 1, but got {}", flag, text);
              });
  flags.value(
      "--early-stop", "METRIC:PATIENCE",
      "stop when val_loss, val_accuracy or train_loss has not improved for that many validations, and "
      "keep the best weights",
      [&](auto& flag, auto& text) { config.early_stop = early_stop(flag, text); });
  flags.value("--seed", "N",
              "of random numbers: first weights, order and augmentation of images, dropout [0]",
              [&](auto& flag, auto& text) { config.seed = seed(flag, text); });
}

void add_data(Flags& flags, TrainerConfig& config) {
  flags.group("Data");
  flags.value("--data-dir", "DIR",
              "folder that holds mnist/, cifar10/, ... [$ATHANOR_DATA_DIR, else data-cache]",
              [&](auto&, auto& text) { config.data_dir = text; });
  if (config.image_size > 0) {
    flags.value("--image-size", "PIXELS",
                fmt::format("side that images are brought to [{}]", config.image_size),
                [&](auto& flag, auto& text) { config.image_size = between(flag, text, 1, 65536); });
    flags.value("--train", "PATH", "training images [DIR/train below --data-dir]",
                [&](auto&, auto& text) { config.train_data = text; });
    flags.value("--val", "PATH", "images to validate on [DIR/val below --data-dir]",
                [&](auto&, auto& text) { config.val_data = text; });
  }
  flags.value("--workers,--num-workers", "N",
              "loader threads; auto, or 0 to load in the training thread [auto]",
              [&](auto& flag, auto& text) { config.workers = workers(flag, text); });
  flags.value("--prefetch", "N", fmt::format("batches there is memory for [{}]", config.prefetch),
              [&](auto& flag, auto& text) { config.prefetch = between(flag, text, 1, 1024); });
  flags.value(
      "--bad-samples", "POLICY",
      "strict: a sample that cannot be read ends the run; skip[:LIMIT]: another takes its place, at most "
      "LIMIT times an epoch [strict]",
      [&](auto& flag, auto& text) { config.bad_samples = bad_samples(flag, text); });
  flags.value("--order", "O", "of images: random, or pages: for files larger than memory [random]",
              [&](auto& flag, auto& text) {
                ATH_CHECK(text == "random" || text == "pages", "{}: must be random or pages, but got '{}'",
                          flag, text);
                config.order = text == "pages" ? Order::page_random : Order::random;
              });
  flags.on("--data-on-device", "keep data sets that are in memory on the device", config.data_on_device);
}

void add_machine(Flags& flags, TrainerConfig& config) {
  flags.group("Device and numbers");
  flags.value("--threads", "N", "CPU threads per rank [all cores, divided among ranks]",
              [&](auto& flag, auto& text) { config.threads = between(flag, text, 1, 1024); });
  flags.value("--precision", "P", "f32, tf32 (on a GPU), or bf16 or f16 with f32 master weights [f32]",
              [&](auto& flag, auto& text) { config.precision = precision(flag, text); });
  flags.value("--loss-scale", "S", "dynamic, dynamic:FIRST, or the scale to keep [dynamic for f16, else 1]",
              [&](auto& flag, auto& text) { config.loss_scaling = loss_scaling(flag, text); });
  flags.value("--grad-dtype", "T", "of gradients: auto or f32 [auto: the precision's; f32 with --accumulate]",
              [&](auto& flag, auto& text) {
                ATH_CHECK(text == "auto" || text == "f32", "{}: must be auto or f32, but got '{}'", flag,
                          text);
                config.f32_gradients = text == "f32";
              });
  flags.value("--device,--accelerator", "D", "auto, cpu or cuda[:N] [auto]", [&](auto&, auto& text) {
    const DeviceChoice choice = choose_device(text);
    config.device = choice.device;
    config.device_note = choice.note;
  });
  flags.value("--memory-limit", "BYTES", "limit of the memory tensors take, as 500000000 or 2G [none]",
              [&](auto& flag, auto& text) { config.memory_limit = byte_count(flag, text); });
  flags.on("--deterministic", "same seed, flags and threads: same weights, bit for bit",
           config.deterministic);
}

void add_ranks(Flags& flags, TrainerConfig& config) {
  flags.group("Several devices");
  flags.value("--devices", "N",
              "ranks (processes that share the work): one per GPU, or on the CPU as many as wanted; auto: "
              "all GPUs [1]",
              [&](auto& flag, auto& text) {
                config.devices = text == "auto" ? TrainerConfig::kAllDevices : between(flag, text, 1, 1024);
              });
  flags.value("--strategy", "S",
              "single: one rank; ddp: each rank has the whole model; zero1: like ddp, but master weights and "
              "optimizer "
              "state are sharded [single; with several ranks ddp]",
              [&](auto& flag, auto& text) { config.strategy = strategy(flag, text); });
  flags.value(
      "--algorithm", "A",
      "how ranks sum gradients: rank_order, ring, hierarchical, native (what MPI or NCCL does), or auto: "
      "native between GPUs of several machines without --deterministic, else rank_order [auto]",
      [&](auto& flag, auto& text) { config.collectives.algorithm = algorithm(flag, text); });
  flags.value("--overlap", "on|off",
              "whether gradients and weights travel between ranks while passes compute [on]",
              [&](auto& flag, auto& text) { config.overlap = on_or_off(flag, text); });
  flags.on("--sync-bn",
           "batch norms take their statistics from the images of all ranks, not each rank from its own",
           config.sync_bn);
  flags.value("--dist-timeout", "SECONDS",
              fmt::format("seconds without a word from a rank, after which all ranks end [{}]",
                          config.collectives.timeout.count() / 1000),
              [&](auto& flag, auto& text) {
                const double seconds = positive(flag, text, 0.1, 86400);
                config.collectives.timeout =
                    std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
              });
  flags.value(
      "--flight-dir", "DIR",
      "folder for the records that ranks write when one is lost; see athanor flight [--checkpoint-dir, else "
      "the current folder]",
      [&](auto&, auto& text) { config.flight_dir = text; });
}

void add_reports(Flags& flags, TrainerConfig& config) {
  flags.group("Checkpoints and reports");
  flags.value("--metrics", "FILE", "append JSON lines: one per epoch, one at the end",
              [&](auto&, auto& text) { config.metrics = text; });
  flags.value("--profile,--profiler", "KIND", "simple: say at the end where the time went",
              [&](auto& flag, auto& text) {
                if (text == "trace") not_built(flag, text, "use --profile simple");
                ATH_CHECK(text == "simple", "{}: must be simple or trace, but got '{}'", flag, text);
                config.profile = true;
              });
  flags.on("--forbid-sync", "a step that waits for the device is an error", config.forbid_sync);
  flags.on("--fast-dev-run", "one step and one batch of validation, to try everything", config.fast_dev_run);
  flags.value("--checkpoint-dir", "DIR", "save checkpoints there, and keep the newest three [none]",
              [&](auto&, auto& text) { config.checkpoint_dir = text; });
  flags.value("--checkpoint-every", "STEPS",
              "save after every so many steps, skipped ones included, and at the end [once per epoch]",
              [&](auto& flag, auto& text) { config.checkpoint_every = whole(flag, text, 1); });
  flags.value("--resume", "auto|FILE",
              "resume from a checkpoint, with the flags of its run; auto: the newest valid one in "
              "--checkpoint-dir, or a fresh start where there is none",
              [&](auto& flag, auto& text) {
                ATH_CHECK(!text.empty(), "{}: must be auto or a checkpoint's file, but is empty", flag);
                config.resume = text;
              });
  flags.value("--pretrained", "FILE",
              "begin with these weights (a checkpoint, or safetensors with this model's names); with other "
              "classes the last layer begins anew [random ones]",
              [&](auto& flag, auto& text) {
                ATH_CHECK(!text.empty(), "{}: must be a file, but is empty", flag);
                config.pretrained = text;
              });
}

/// CommunicatorOptions::compare_calls, for the day on which something is wrong: a variable, because whoever
/// looks for an error has a command that he need not change.
bool compare_calls() {
  const char* text = std::getenv("ATHANOR_DIST_DEBUG");
  const std::string value = text ? text : "";
  ATH_CHECK(value.empty() || value == "0" || value == "1", "ATHANOR_DIST_DEBUG: must be 0 or 1, but is '{}'",
            value);
  return value == "1";
}

}  // namespace

TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig config) {
  if (config.data_dir.empty()) {
    const char* folder = std::getenv("ATHANOR_DATA_DIR");
    config.data_dir = folder ? folder : "data-cache";  // where scripts/get_data.sh puts things
  }
  config.collectives.compare_calls |= compare_calls();
  CLI::App app(
      "Trains a model. Its held-out images (a data set's test part) serve as validation\n"
      "and test set at once: with --early-stop they also choose the weights, which\n"
      "flatters val_loss and val_accuracy.",
      config.program);
  app.allow_extras();
  std::vector<std::string> names{"--help"};
  Flags flags(app, names);
  if (const DeviceChoice choice = choose_device("auto"); config.device == kCpu) {
    config.device = choice.device;
    config.device_note = choice.note;
  }
  add_training(flags, config);
  add_data(flags, config);
  add_machine(flags, config);
  add_ranks(flags, config);
  add_reports(flags, config);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw HelpRequested(app.help());
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    detail::fail<>("{}: {}; see --help", config.program, line);
  }
  if (const std::vector<std::string> extras = app.remaining(); !extras.empty()) {
    const std::string name = extras[0].substr(0, extras[0].find('='));
    ATH_CHECK(name.starts_with("-"), "{}: there are only flags, but got '{}'; see --help", config.program,
              name);
    detail::fail<>("{}: there is no flag '{}'{}; see --help", config.program, name,
                   did_you_mean(name, names));
  }
  check(config);
  return config;
}

}  // namespace athanor
