// The flags every training program shares: how each is called, what --help says of it, which field of the
// config it sets, and how its text is read.

#include <algorithm>
#include <cstdlib>

#include <CLI/CLI.hpp>

#include "tensor/nearest.h"
#include "trainer/config.h"
#include "trainer/detail/flag_table.h"
#include "trainer/detail/read_flag.h"
#include "trainer/detail/terminal.h"
#include "trainer/flags.h"

namespace athanor {
namespace {

using namespace read_flag;
using detail::FlagTable;

void add_training(FlagTable& flags, TrainerConfig& config) {
  flags.group("Training");
  if (!config.models.empty()) {
    const std::string names = fmt::format("{}", fmt::join(config.models, " "));
    flags.add("--model NAME", fmt::format("one of {} [{}]", names, config.model), config.model,
              [&config, names](Text flag, Text text) {
                ATH_CHECK(std::find(config.models.begin(), config.models.end(), text) != config.models.end(),
                          "{}: must be one of {}, but got '{}'{}", flag, names, text,
                          did_you_mean(text, config.models));
                return text;
              });
  }
  flags.add("--epochs,--max-epochs N", "passes over the training set [{}]", config.epochs, whole(1));
  flags.add("--max-steps N", "stop after N steps, skipped ones included [no limit]", config.max_steps,
            word_or("-1", -1, whole(1)));
  flags.add("--max-time SECONDS", "stop after SECONDS of training, including time before --resume [no limit]",
            config.max_time_s, positive(1e-6, 1e9));
  flags.add("--batch-size N", "images per backward pass, of all devices together [{}]", config.batch_size,
            whole(1));
  flags.add("--val-batch-size N", "images per batch of validation [the larger of --batch-size and 256]",
            config.val_batch_size, whole(1));
  flags.add("--lr RATE", "highest learning rate [{}]", config.lr, positive());
  flags.add("--accumulate,--accumulate-grad-batches N", "backward passes per step [1]", config.accumulate,
            whole(1, 1'000'000));
  flags.add("--clip-norm,--gradient-clip-val X", "clip gradients to this norm, of all together [none]",
            config.clip_norm, positive(1e-30, 1e15));
  flags.add("--clip-value X", "clip each gradient to [-X, X], after --clip-norm [none]", config.clip_value,
            positive(1e-30, 1e15));
  flags.add("--skip-outliers Z", "skip steps whose gradient norm is Z deviations above its mean [none]",
            config.skip_outliers, positive(1e-3, 1e6));
  flags.add("--class-weights KIND",
            "balanced: in training losses a class weighs the more, the fewer images it has; none [none]",
            config.balanced_classes, one_of<bool>({{"none", false}, {"balanced", true}}));
  flags.add("--seed N", "random seed: initial weights, order and augmentation of images, dropout [0]",
            config.seed, seed);
}

// What is kept, when it ends, and what does not train.
void add_weights(FlagTable& flags, TrainerConfig& config) {
  flags.add("--ema DECAY", "validate and keep a running average of the weights [none]", config.ema_decay,
            below_1);
  flags.add(
      "--early-stop METRIC:PATIENCE",
      "stop when val_loss, val_accuracy or train_loss has not improved for PATIENCE validations, and keep "
      "the best weights; for another metric that the program logs: METRIC:PATIENCE:min or :max",
      config.early_stop, early_stop);
  flags.add(
      "--monitor METRIC",
      "keep the weights of the best validation, without stopping: val_loss, val_accuracy, train_loss, or "
      "for another metric that the program logs METRIC:min or :max [the last weights]",
      config.early_stop, monitor);
  flags.add_each("--freeze PREFIX[:EPOCHS]",
                 "do not train the part of the network of that name (layer1, features.0), nor move its batch "
                 "norms' statistics, or not in the first EPOCHS; may be given several times [none]",
                 config.freeze, freeze);
}

void add_data(FlagTable& flags, TrainerConfig& config) {
  flags.group("Data");
  flags.add("--data-dir DIR", "folder that holds mnist/, cifar10/, ... [$ATHANOR_DATA_DIR, else data-cache]",
            config.data_dir, path);
  if (config.image_size > 0) {
    flags.add("--image-size PIXELS", "side that images are brought to [{}]", config.image_size,
              whole(1, 65536));
    flags.add("PHOTOS PATH",
              "all images: a folder for each class, or other data; --val-split of them are validated on, and "
              "the others trained on",
              config.photos, path);
    flags.add("--val-split SHARE", "the share of PHOTOS, of each class, to validate on [{}]",
              config.val_split, positive(1e-6, 1 - 1e-6));
    flags.add("--test PATH", "images that choose nothing, and are measured once, at the end [none]",
              config.test_data, path);
    flags.add("--train PATH", "training images [DIR/train below --data-dir]", config.train_data, path);
    flags.add("--val PATH", "images to validate on [DIR/val below --data-dir]", config.val_data, path);
  }
  flags.add("--workers,--num-workers N", "loader threads; auto, or 0 to load in the training thread [auto]",
            config.workers, word_or("auto", LoaderOptions::kAuto, whole(0, 1024)));
  flags.add("--prefetch N", "batches held in memory, the one in use included [{}]", config.prefetch,
            whole(1, 1024));
  flags.add("--bad-samples POLICY",
            "strict: a sample that cannot be read ends the run; skip[:LIMIT]: another takes its place, at "
            "most LIMIT times an epoch [strict]",
            config.bad_samples, bad_samples);
  flags.add("--order O", "order of images: random, or pages, for files larger than memory [random]",
            config.order, one_of<Order>({{"random", Order::random}, {"pages", Order::page_random}}));
  flags.on("--data-on-device", "keep data sets that are in memory on the device", config.data_on_device);
}

void add_machine(FlagTable& flags, TrainerConfig& config) {
  flags.group("Device and numbers");
  flags.add("--threads N", "CPU threads per rank [all cores, divided among ranks]", config.threads,
            whole(1, 1024));
  flags.add("--precision P", "f32, tf32 (on a GPU), or bf16 or f16 with f32 master weights [f32]",
            config.precision, precision);
  flags.add("--loss-scale S", "dynamic, dynamic:FIRST, or the scale to keep [dynamic for f16, else 1]",
            config.loss_scaling, loss_scaling);
  flags.add("--grad-dtype T",
            "dtype of gradients: auto or f32 [auto: the precision's; f32 with --accumulate]",
            config.f32_gradients, one_of<bool>({{"auto", false}, {"f32", true}}));
  flags.add("--device,--accelerator D", "auto, cpu or cuda[:N] [auto]", config.device,
            [&config](Text flag, Text text) {
              const DeviceChoice choice = device(flag, text);
              config.device_note = choice.note;
              return choice.device;
            });
  flags.add("--memory-limit BYTES",
            "most memory that tensors may take, as 500000000 or 2G [on the CPU, nearly all that is free]",
            config.memory_limit, byte_count);
  flags.on("--deterministic", "same seed, flags and threads: same weights, bit for bit",
           config.deterministic);
}

void add_ranks(FlagTable& flags, TrainerConfig& config) {
  using dist::Algorithm;
  flags.group("Several devices");
  flags.add("--devices N",
            "ranks (processes that share the work): one per GPU, or on the CPU as many as wanted; auto: all "
            "GPUs [1]",
            config.devices, word_or("auto", TrainerConfig::kAllDevices, whole(1, 1024)));
  flags.add("--strategy S",
            "single: one rank; ddp: each rank has the whole model; zero1: like ddp, but master weights and "
            "optimizer state are sharded [single; with several ranks ddp]",
            config.strategy, strategy);
  flags.add(
      "--algorithm A",
      "how ranks sum gradients: rank_order, ring, hierarchical, native (what MPI or NCCL does), or auto: "
      "native between GPUs of several machines without --deterministic, else rank_order [auto]",
      config.collectives.algorithm,
      one_of<Algorithm>({{"auto", Algorithm::automatic},
                         {"rank_order", Algorithm::rank_order},
                         {"ring", Algorithm::ring},
                         {"hierarchical", Algorithm::hierarchical},
                         {"native", Algorithm::native}}));
  flags.add("--overlap on|off",
            "whether gradients and weights travel between ranks while passes compute [on]", config.overlap,
            one_of<bool>({{"on", true}, {"off", false}}));
  flags.on("--sync-bn",
           "batch norms take their statistics from the images of all ranks, not each rank from its own",
           config.sync_bn);
  flags.add("--dist-timeout SECONDS",
            fmt::format("seconds without a word from a rank, after which all ranks end [{}]",
                        config.collectives.timeout.count() / 1000),
            config.collectives.timeout, seconds);
  flags.add("--flight-dir DIR",
            "folder for the records that ranks write when one is lost; see athanor flight [--checkpoint-dir, "
            "else the current folder]",
            config.flight_dir, path);
}

void add_reports(FlagTable& flags, TrainerConfig& config) {
  flags.group("Checkpoints and reports");
  flags.add("--metrics FILE",
            "append JSON lines: one per epoch, one at the end [metrics.jsonl of --run-dir, else none]",
            config.metrics, path);
  flags.add("--profile,--profiler KIND", "simple: show at the end where the time went", config.profile,
            profile);
  flags.on("--forbid-sync", "a step that waits for the device is an error", config.forbid_sync);
  flags.on("--fast-dev-run", "one step and one batch of validation, to try everything", config.fast_dev_run);
  flags.add("--run-dir DIR|none",
            "folder of the run: its weights, metrics.jsonl, checkpoints/ and the pictures of samples/ go "
            "there, unless "
            "flags say where [the next of " +
                (config.run_root.empty() ? "runs" : config.run_root.string()) + "/1, 2, ...]",
            config.run_dir, [&config](Text flag, Text text) {
              config.run_root.clear();
              return text == "none" ? "" : path(flag, text);
            });
  flags.add("--checkpoint-dir DIR",
            "save checkpoints there, and keep the newest [checkpoints/ of --run-dir, else none]",
            config.checkpoint_dir, path);
  flags.add(
      "--checkpoint-every STEPS|Nmin",
      "save after every so many steps, skipped ones included, or minutes, and at the end; SIGUSR1 saves "
      "at once [once per epoch]",
      config.checkpoint_every, [&config](Text flag, Text text) -> std::int64_t {
        if (!text.ends_with("min")) return whole(1)(flag, text);
        config.checkpoint_every_s = 60 * positive(1e-3, 1e7)(flag, text.substr(0, text.size() - 3));
        return 0;
      });
  flags.add("--keep N", "checkpoints that are kept, the newest ones [{}]", config.checkpoint_keep, whole(1));
  flags.add("--save-top-k K", "save after each epoch, and keep the best K by --monitor, too [none]",
            config.save_top_k, whole(1));
  flags.on(
      "--async-checkpoints",
      "write checkpoints from a copy in memory while training goes on: takes memory for all that is saved",
      config.async_checkpoints);
  flags.add(
      "--resume auto|FILE",
      "resume from a checkpoint, with the flags of its run; auto: the newest valid one in "
      "--checkpoint-dir or --run-dir, or of the newest run with these settings that was not finished; a "
      "fresh start where there is none",
      config.resume, path);
  if (config.models.empty()) return;  // a task's networks are the program's to fill
  flags.add(
      "--pretrained FILE",
      "initial weights: a run's model, a checkpoint, or safetensors or a .pth of torchvision's or timm's "
      "model of this name; if the number of classes differs, the last layer starts from random weights "
      "[random]",
      config.pretrained, path);
  flags.on("--reset-head",
           "with --pretrained: the last layer starts from random weights where the number of classes is the "
           "same, too",
           config.reset_head);
  flags.on(
      "--validate-only",
      "train nothing: measure the model.safetensors of --pretrained, or of the newest run, on the images "
      "to validate on, as athanor evaluate does",
      config.validate_only);
}

/// Those of the program itself.
void add_own(FlagTable& flags, const TrainerConfig& config, const Flags& own) {
  flags.group(config.program);
  for (const Flags::Flag& flag : own.all()) {
    ATH_CHECK(!flags.has(flag.name),
              "flags: {} is a flag of all training programs: {} must call its own otherwise", flag.name,
              config.program);
    flags.add_own(flag);
  }
}

/// Of the environment; empty where it is not set.
std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
}

/// Where a program's runs make their folders; empty: nowhere.
std::filesystem::path runs_of(const std::string& program) {
  const std::string root = variable("ATHANOR_RUNS_DIR");
  if (root == "none") return {};
  return std::filesystem::path(root.empty() ? "runs" : root) / program;
}

/// Says where the value of a flag that was not given comes from.
void set_source(std::vector<FlagValue>& flags, const std::string& name, const std::string& from) {
  for (FlagValue& flag : flags) {
    if (flag.name == name && flag.from == "default") flag.from = from;
  }
}

/// CommunicatorOptions::compare_calls, for the day on which something is wrong: a variable, because whoever
/// looks for an error has a command that he need not change.
bool compare_calls() {
  const std::string value = variable("ATHANOR_DIST_DEBUG");
  ATH_CHECK(value.empty() || value == "0" || value == "1", "ATHANOR_DIST_DEBUG: must be 0 or 1, but is '{}'",
            value);
  return value == "1";
}

/// What is left over: a flag that there is not, or a word that belongs to none.
void refuse_extras(const CLI::App& app, const std::string& program) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return;
  const std::string name = extras[0].substr(0, extras[0].find('='));
  ATH_CHECK(name.starts_with("-"), "{}: there are only flags, but got '{}'; see --help", program, name);
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  }
  detail::fail<>("{}: there is no flag '{}'{}; see --help", program, name, did_you_mean(name, names));
}

/// What flags say of each other.
void check_together(const FlagTable& flags, TrainerConfig& config) {
  // The images that are validated on must stay the same ones.
  if (!config.photos.empty() && config.val_data.empty())
    config.own_flags.push_back({"--val-split", fmt::format("{}", config.val_split)});
  ATH_CHECK(config.photos.empty() || config.train_data.empty(),
            "--train: PHOTOS are the images to train on: give one of them");
  ATH_CHECK(!flags.given("--early-stop") || !flags.given("--monitor"),
            "--monitor: --early-stop keeps the best weights, too: give one of them");
}

}  // namespace

TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig config) {
  return parse_flags(argc, argv, std::move(config), {});
}

TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig config, const Flags& own) {
  const std::string data_folder = variable("ATHANOR_DATA_DIR");
  if (config.data_dir.empty()) {
    config.data_dir =
        data_folder.empty() ? "data-cache" : data_folder;  // where scripts/get_data.sh puts things
  }
  config.collectives.compare_calls |= compare_calls();
  if (config.run_dir.empty() && config.run_root.empty()) config.run_root = runs_of(config.program);
  config.command.assign(argv, argv + argc);
  CLI::App app(
      "Trains a model. Its held-out images (a data set's test part) serve as validation\n"
      "and test set at once: with --early-stop they also choose the weights, which\n"
      "flatters val_loss and val_accuracy.",
      config.program);
  app.allow_extras();
  FlagTable flags(app);
  if (const DeviceChoice choice = automatic_device(); config.device == kCpu) {
    config.device = choice.device;
    config.device_note = choice.note;
  }
  add_training(flags, config);
  add_weights(flags, config);
  add_data(flags, config);
  add_machine(flags, config);
  add_ranks(flags, config);
  add_reports(flags, config);
  add_own(flags, config, own);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw HelpRequested(app.help());
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    detail::fail<>("{}: {}; see --help", config.program, line);
  }
  refuse_extras(app, config.program);
  for (const Flags::Flag& flag : own.all()) {
    if (flag.text) config.own_flags.push_back({flag.name, flag.text()});
  }
  check_together(flags, config);
  config.flags = flags.values();
  if (!data_folder.empty()) set_source(config.flags, "--data-dir", "ATHANOR_DATA_DIR");
  if (config.fast_dev_run) config.run_root.clear();  // leaves nothing behind
  if (!config.validate_only) config = in_run_dir(std::move(config));
  check(config);
  return config;
}

}  // namespace athanor
