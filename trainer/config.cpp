#include "trainer/config.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <span>

#include <CLI/CLI.hpp>

#include "optim/step.h"
#include "tensor/error.h"
#include "tensor/nearest.h"
#include "tensor/stream.h"
#include "trainer/choose_device.h"

namespace athanor {
namespace {

template <class T> T number(const std::string& flag, const std::string& text, const char* what) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  ATH_CHECK(error == std::errc() && end == text.data() + text.size(), "{}: must be {}, but got '{}'", flag,
            what, text);
  return value;
}

std::int64_t at_least(const std::string& flag, const std::string& text, std::int64_t low) {
  const auto value = number<std::int64_t>(flag, text, "a whole number");
  ATH_CHECK(value >= low, "{}: must be at least {}, but got {}", flag, low, value);
  return value;
}

double positive(const std::string& flag, const std::string& text) {
  const auto value = number<double>(flag, text, "a number");
  ATH_CHECK(std::isfinite(value) && value > 0, "{}: must be a finite number above 0, but got {}", flag, text);
  return value;
}

/// "500000000", "512M", "2GiB".
std::int64_t byte_count(const std::string& flag, const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string unit = text.substr(digits);
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (unit.ends_with("IB")) unit.resize(unit.size() - 2);
  if (unit.ends_with("B")) unit.pop_back();
  const std::size_t power = unit.empty() ? 0 : std::string("KMGT").find(unit) + 1;
  ATH_CHECK(digits > 0 && unit.size() <= 1 && power <= 4,
            "{}: must be a number of bytes such as 500000000 or 2G, "
            "but got '{}'",
            flag, text);
  const auto count = number<std::int64_t>(flag, text.substr(0, digits), "a number of bytes");
  ATH_CHECK(count > 0 && count < (std::int64_t{1} << 60 >> (10 * power)),
            "{}: must be a number of bytes this machine can have, but got '{}'", flag, text);
  return count << (10 * power);
}

EarlyStop early_stop(const std::string& flag, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  ATH_CHECK(colon != std::string::npos, "{}: must be METRIC:PATIENCE, as in val_loss:3, but got '{}'", flag,
            text);
  return {text.substr(0, colon), at_least(flag, text.substr(colon + 1), 1)};
}

int workers(const std::string& flag, const std::string& text) {
  if (text == "auto") return LoaderOptions::kAuto;
  const std::int64_t threads = at_least(flag, text, 0);
  ATH_CHECK(threads <= 1024, "{}: must be at most 1024, but got {}", flag, threads);
  return static_cast<int>(threads);
}

/// "strict", "skip" or "skip:20".
BadSamples bad_samples(const std::string& flag, const std::string& text) {
  if (text == "strict") return {};
  ATH_CHECK(text == "skip" || text.starts_with("skip:"),
            "{}: must be strict, skip or skip:LIMIT, but got '{}'", flag, text);
  BadSamples policy{.skip = true};
  if (text != "skip") policy.limit = at_least(flag, text.substr(5), 0);
  return policy;
}

[[noreturn]] void not_built(const std::string& flag, const std::string& value, const char* instead) {
  detail::fail<>("{} {}: not part of this version; {}", flag, value, instead);
}

Strategy strategy(const std::string& flag, const std::string& text) {
  ATH_CHECK(text != "dp",
            "{} dp: one process that copies the model to every device in every step is not offered; use ddp, "
            "one process per device, with the same result",
            flag);
  for (const Strategy known : {Strategy::single, Strategy::ddp, Strategy::zero1}) {
    if (text == name_of(known)) return known;
  }
  detail::fail<>("{}: must be single, ddp or zero1, but got '{}'", flag, text);
}

Precision precision(const std::string& flag, const std::string& text) {
  const auto value = precision_named(text);
  ATH_CHECK(value, "{}: must be f32, tf32, bf16 or f16, but got '{}'", flag, text);
  return *value;
}

/// "dynamic", "dynamic:65536" or "1024".
LossScaling loss_scaling(const std::string& flag, const std::string& text) {
  const bool dynamic = text.starts_with("dynamic");
  if (text == "dynamic") return {};
  ATH_CHECK(!dynamic || text[7] == ':', "{}: must be dynamic, dynamic:SCALE or a scale, but got '{}'", flag,
            text);
  const auto scale = static_cast<float>(positive(flag, dynamic ? text.substr(8) : text));
  if (!dynamic) return LossScaling::fixed(scale);
  LossScaling scaling;
  ATH_CHECK(scale >= scaling.floor && scale <= scaling.ceiling, "{}: must begin in [{}, {}], but got {}",
            flag, scaling.floor, scaling.ceiling, scale);
  scaling.initial = scale;
  return scaling;
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
            help)
        ->type_name(shown)
        ->take_last();
  }
  void on(const std::string& names, const std::string& help, bool& target) {
    remember(names);
    app_.add_flag(names, target, help);
  }

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
};

void add_training(Flags& flags, TrainerConfig& config) {
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
              [&](auto& flag, auto& text) { config.epochs = at_least(flag, text, 1); });
  flags.value(
      "--max-steps", "N", "stop after N steps, skipped ones included [no limit]",
      [&](auto& flag, auto& text) { config.max_steps = text == "-1" ? -1 : at_least(flag, text, 1); });
  flags.value("--max-time", "SECONDS", "stop after this much training time [no limit]",
              [&](auto& flag, auto& text) { config.max_time_s = positive(flag, text); });
  flags.value("--batch-size", "N",
              fmt::format("images per backward pass, of all devices together [{}]", config.batch_size),
              [&](auto& flag, auto& text) { config.batch_size = at_least(flag, text, 1); });
  flags.value("--val-batch-size", "N", "images per batch of validation [the larger of --batch-size and 256]",
              [&](auto& flag, auto& text) { config.val_batch_size = at_least(flag, text, 1); });
  flags.value("--lr", "RATE", fmt::format("highest learning rate [{}]", config.lr),
              [&](auto& flag, auto& text) { config.lr = positive(flag, text); });
  flags.value("--accumulate,--accumulate-grad-batches", "N", "backward passes per step [1]",
              [&](auto& flag, auto& text) { config.accumulate = at_least(flag, text, 1); });
  flags.value("--clip-norm,--gradient-clip-val", "X", "limit of the gradients' norm [none]",
              [&](auto& flag, auto& text) { config.clip_norm = positive(flag, text); });
  flags.value("--clip-value", "X", "limit of each gradient, after --clip-norm [none]",
              [&](auto& flag, auto& text) { config.clip_value = positive(flag, text); });
  flags.value("--skip-outliers", "Z", "skip steps whose gradient norm is Z deviations above its mean [none]",
              [&](auto& flag, auto& text) { config.skip_outliers = positive(flag, text); });
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
  flags.value("--seed", "N", "of weights, order and augmentation [0]", [&](auto& flag, auto& text) {
    config.seed = number<std::uint64_t>(flag, text, "a whole number of at least 0");
  });
}

void add_images(Flags& flags, TrainerConfig& config) {
  if (config.image_size == 0) return;
  flags.value("--image-size", "PIXELS",
              fmt::format("side that images are brought to [{}]", config.image_size),
              [&](auto& flag, auto& text) { config.image_size = at_least(flag, text, 1); });
  flags.value("--train", "PATH", "training images [DIR/train below --data-dir]",
              [&](auto&, auto& text) { config.train_data = text; });
  flags.value("--val", "PATH", "images to validate on [DIR/val below --data-dir]",
              [&](auto&, auto& text) { config.val_data = text; });
}

void add_machine(Flags& flags, TrainerConfig& config) {
  flags.value("--threads", "N", "of the CPU, for each device [all cores, divided among them]",
              [&](auto& flag, auto& text) {
                const std::int64_t threads = at_least(flag, text, 1);
                ATH_CHECK(threads <= 1024, "{}: must be at most 1024, but got {}", flag, threads);
                config.threads = static_cast<int>(threads);
              });
  flags.value("--precision", "P", "f32, tf32 (on a GPU), or bf16 or f16 with f32 master weights [f32]",
              [&](auto& flag, auto& text) { config.precision = precision(flag, text); });
  flags.value("--loss-scale", "S", "dynamic, dynamic:FIRST, or the scale to keep [dynamic for f16, else 1]",
              [&](auto& flag, auto& text) { config.loss_scaling = loss_scaling(flag, text); });
  flags.value("--grad-dtype", "T", "auto or f32 [auto: the precision's, f32 with --accumulate]",
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
  flags.value(
      "--devices", "N",
      "processes that share the work, one per GPU, or on the CPU as many as wanted; auto: all GPUs [1]",
      [&](auto& flag, auto& text) {
        const std::int64_t count = text == "auto" ? 0 : at_least(flag, text, 1);
        ATH_CHECK(count <= 1024, "{}: must be at most 1024, but got {}", flag, count);
        config.devices = text == "auto" ? TrainerConfig::kAllDevices : static_cast<int>(count);
      });
  flags.value(
      "--strategy", "S",
      "single; ddp: each has all of the model; zero1: and a part of masters and optimizer state [single, "
      "with several devices ddp]",
      [&](auto& flag, auto& text) { config.strategy = strategy(flag, text); });
  flags.on("--sync-bn", "batch norms over the samples of all ranks, not of each alone", config.sync_bn);
  flags.value("--dist-timeout", "SECONDS",
              fmt::format("of several devices, how long one may not be heard of before all end [{}]",
                          config.collectives.timeout.count() / 1000),
              [&](auto& flag, auto& text) {
                const double seconds = positive(flag, text);
                ATH_CHECK(seconds >= 0.1 && seconds <= 86400, "{}: must be 0.1 s to a day, but got {}", flag,
                          seconds);
                config.collectives.timeout =
                    std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
              });
  flags.value("--flight-dir", "DIR",
              "of several devices, where a record is written when one is lost [--checkpoint-dir, or here]",
              [&](auto&, auto& text) { config.flight_dir = text; });
  flags.value("--workers,--num-workers", "N", "threads that read data, auto, or 0: none [auto]",
              [&](auto& flag, auto& text) { config.workers = workers(flag, text); });
  flags.value("--prefetch", "N", fmt::format("batches there is memory for [{}]", config.prefetch),
              [&](auto& flag, auto& text) {
                const std::int64_t batches = at_least(flag, text, 1);
                ATH_CHECK(batches <= 1024, "{}: must be at most 1024, but got {}", flag, batches);
                config.prefetch = static_cast<int>(batches);
              });
  flags.value("--bad-samples", "POLICY",
              "strict: end at a sample that cannot be read; skip[:LIMIT]: take another, LIMIT times an epoch "
              "[strict]",
              [&](auto& flag, auto& text) { config.bad_samples = bad_samples(flag, text); });
  flags.value("--order", "O", "random, or pages: for files larger than memory [random]",
              [&](auto& flag, auto& text) {
                ATH_CHECK(text == "random" || text == "pages", "{}: must be random or pages, but got '{}'",
                          flag, text);
                config.order = text == "pages" ? Order::page_random : Order::random;
              });
  flags.on("--data-on-device", "keep data sets that are in memory on the device", config.data_on_device);
  flags.value("--data-dir", "DIR",
              "folder that holds mnist/, cifar10/, ... [$ATHANOR_DATA_DIR, else data-cache]",
              [&](auto&, auto& text) { config.data_dir = text; });
  flags.value("--memory-limit", "BYTES", "limit of the memory tensors take, as 500000000 or 2G [none]",
              [&](auto& flag, auto& text) { config.memory_limit = byte_count(flag, text); });
  flags.on("--deterministic", "same seed, flags and threads: same weights, bit for bit",
           config.deterministic);
}

void add_reports(Flags& flags, TrainerConfig& config) {
  flags.value("--metrics", "FILE", "append JSON lines: one per epoch, one at the end",
              [&](auto&, auto& text) { config.metrics = text; });
  flags.value("--profile,--profiler", "KIND", "simple: say at the end where the time went",
              [&](auto& flag, auto& text) {
                if (text == "trace") not_built(flag, text, "use --profile simple");
                ATH_CHECK(text == "simple", "{}: must be simple or trace, but got '{}'", flag, text);
                config.profile = true;
              });
  flags.on("--forbid-sync", "waiting for the device inside a step is an error", config.forbid_sync);
  flags.on("--fast-dev-run", "one step and one batch of validation, to try everything", config.fast_dev_run);
  flags.value("--checkpoint-dir", "DIR", "save checkpoints there, and keep the newest three [none]",
              [&](auto&, auto& text) { config.checkpoint_dir = text; });
  flags.value("--checkpoint-every", "STEPS",
              "save after every so many steps, skipped ones included, and at the end [once per epoch]",
              [&](auto& flag, auto& text) { config.checkpoint_every = at_least(flag, text, 1); });
  flags.value("--resume", "auto|FILE",
              "go on from a checkpoint; auto: the newest one in --checkpoint-dir that is whole, else begin",
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

}  // namespace

TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig config) {
  if (config.data_dir.empty()) {
    const char* folder = std::getenv("ATHANOR_DATA_DIR");
    config.data_dir = folder ? folder : "data-cache";  // where scripts/get_data.sh puts things
  }
  CLI::App app(
      "Trains a model. Its held-out images (a data set's test part) serve as validation and test set at "
      "once:\n"
      "with --early-stop they also choose the weights, which flatters val_loss and val_accuracy.",
      config.program);
  app.allow_extras();
  std::vector<std::string> names{"--help"};
  Flags flags(app, names);
  if (const DeviceChoice choice = choose_device("auto"); config.device == kCpu) {
    config.device = choice.device;
    config.device_note = choice.note;
  }
  add_training(flags, config);
  add_images(flags, config);
  add_machine(flags, config);
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

void check(const TrainerConfig& config) {
  ATH_CHECK(
      config.epochs >= 1 && config.batch_size >= 1 && config.accumulate >= 1 && config.val_batch_size >= 0,
      "trainer: epochs, batch size and accumulate must be at least 1, but got {}, {} and {}", config.epochs,
      config.batch_size, config.accumulate);
  ATH_CHECK(std::isfinite(config.lr) && config.lr > 0,
            "trainer: the learning rate must be above 0, but got {}", config.lr);
  ATH_CHECK(config.precision != Precision::tf32 || config.device.is_cuda(),
            "--precision tf32: must be on a GPU, but the device is {}; use f32 or bf16", config.device.str());
  ATH_CHECK(
      config.precision != Precision::bf16 || config.device.is_cpu() || device_info(config.device).sm() >= 80,
      "--precision bf16: the GPU must be of compute capability 8.0 or newer, but {} is not; use f32",
      device_info(config.device).name);
  ATH_CHECK(
      config.devices >= TrainerConfig::kAllDevices && config.local_ranks >= 1,
      "trainer: devices must be at least 0 or kAllDevices and local_ranks at least 1, but got {} and {}",
      config.devices, config.local_ranks);
  ATH_CHECK(config.strategy != Strategy::single || config.devices <= 1,
            "--strategy single: must have one device, but got --devices {}; use ddp or zero1",
            config.devices);
  ATH_CHECK(config.clip_norm >= 0 && config.label_smoothing >= 0 && config.label_smoothing < 1,
            "trainer: the norm limit must be at least 0 and smoothing in [0, 1), but got {} and {}",
            config.clip_norm, config.label_smoothing);
  ATH_CHECK(config.clip_value >= 0 && config.skip_outliers >= 0 && config.patience_at_floor >= 1,
            "trainer: value limit and outlier limit must be at least 0 and patience_at_floor at least 1, but "
            "got {}, {} and {}",
            config.clip_value, config.skip_outliers, config.patience_at_floor);
  ATH_CHECK(config.ema_decay >= 0 && config.ema_decay < 1, "trainer: ema_decay must be in [0, 1), but got {}",
            config.ema_decay);
  if (config.loss_scaling) check(*config.loss_scaling);
  ATH_CHECK(config.workers >= LoaderOptions::kAuto && config.prefetch >= 1,
            "trainer: workers must be at least 0 or kAuto and prefetch at least 1, but got {} and {}",
            config.workers, config.prefetch);
  ATH_CHECK(config.checkpoint_every >= 0 && config.checkpoint_keep >= 1,
            "trainer: checkpoint_every must be at least 0 and checkpoint_keep at least 1, but got {} and {}",
            config.checkpoint_every, config.checkpoint_keep);
  ATH_CHECK(config.checkpoint_every == 0 || !config.checkpoint_dir.empty(),
            "--checkpoint-every: needs --checkpoint-dir, which says where");
  ATH_CHECK(config.resume != "auto" || !config.checkpoint_dir.empty(),
            "--resume auto: needs --checkpoint-dir, which says where from; or name a checkpoint's file");
  ATH_CHECK(config.resume.empty() || config.resume == "auto" || std::filesystem::exists(config.resume),
            "--resume: must be auto or a checkpoint's file, but there is no {}", config.resume);
  ATH_CHECK(config.resume.empty() || !config.fast_dev_run,
            "--fast-dev-run: must go without --resume, as it makes one step of its own");
  ATH_CHECK(config.pretrained.empty() || std::filesystem::exists(config.pretrained),
            "--pretrained: must be a file of weights, but there is no {}", config.pretrained.string());
  if (config.early_stop) {
    const std::vector<std::string> metrics{"val_loss", "val_accuracy", "train_loss"};
    const std::string& metric = config.early_stop->metric;
    ATH_CHECK(std::find(metrics.begin(), metrics.end(), metric) != metrics.end(),
              "--early-stop: the metric must be one of {}, but got '{}'{}", fmt::join(metrics, " "), metric,
              did_you_mean(metric, metrics));
  }
}

}  // namespace athanor
