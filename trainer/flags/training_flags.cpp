// Flags about training: length, steps, data, and which weights are kept.

#include <algorithm>

#include "nn/models/model.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/flags/detail/shared_flags.h"

namespace athanor::detail {

using namespace read_flag;

void add_training_flags(FlagTable& flags, TrainerConfig& config) {
  flags.group("Training");
  if (!config.models.empty()) {
    const std::string names = fmt::format("{}", fmt::join(config.models, " "));
    flags.add("--model NAME", fmt::format("one of {} [{}]", names, config.model), config.model,
              [&config, names](Text flag, Text text) {
                ATH_CHECK(std::find(config.models.begin(), config.models.end(), text) != config.models.end(),
                          "{}: must be one of {}, but got '{}'{}", flag, names, text,
                          nn::did_you_mean_model(text, config.models));
                return text;
              });
  }
  flags.add("--epochs,--max-epochs N", "passes over the training set [{}]", config.epochs,
            [](Text flag, Text text) {
              ATH_CHECK(text != "-1",
                        "{}: must be a number, but got -1; if --max-time, --max-steps or --early-stop ends "
                        "the run, use a large number",
                        flag);
              return whole(1)(flag, text);
            });
  flags.add("--max-steps N", "stop after N steps, skipped ones included [no limit]", config.max_steps,
            word_or("-1", -1, whole(1)));
  flags.add("--max-time TIME",
            "stop after this much training time, including time before --resume: SECONDS, HH:MM:SS or "
            "DD:HH:MM:SS [no limit]",
            config.max_time_s, max_time);
  flags.add("--batch-size N", "images per backward pass, over all devices [{}]", config.batch_size, whole(1));
  flags.add("--val-batch-size N", "images per validation batch [the larger of --batch-size and 256]",
            config.val_batch_size, whole(1));
  flags.add("--accumulate,--accumulate-grad-batches N", "backward passes per step [1]", config.accumulate,
            whole(1, 1'000'000));
  flags.add("--clip-norm,--gradient-clip-val X", "clip the norm of all gradients together to X [none]",
            config.clip_norm, positive(1e-30, 1e15));
  flags.add("--clip-value X", "clip each gradient to [-X, X], after --clip-norm [none]", config.clip_value,
            positive(1e-30, 1e15));
  flags.add("--skip-outliers Z", "skip steps whose gradient norm is Z deviations above its mean [none]",
            config.skip_outliers, positive(1e-3, 1e6));
  flags.add("--seed N", "random seed: initial weights, order and augmentation of images, dropout [0]",
            config.seed, seed);
}

/// When to validate, and how much of the data to use.
void add_cadence_flags(FlagTable& flags, TrainerConfig& config) {
  flags.group("Validation and limits");
  flags.add("--val-every N[e]", "validate every N steps, or every N epochs (as in 2e) [1e]", config.val_every,
            [](Text flag, Text text) {
              const TrainingLength every = training_length(flag, text);
              ATH_CHECK(every.count > 0, "{}: must be above 0, but got {}", flag, text);
              return every;
            });
  flags.add("--limit-train-batches N",
            "train on N batches of each epoch, or on a share of them, such as 0.1 [1.0]",
            config.limit_train_batches, batch_limit(1));
  flags.add("--limit-val-batches N", "validate on N batches, or on a share of them; 0: never [1.0]",
            config.limit_val_batches, batch_limit(0));
  flags.add("--overfit-batches N",
            "train on the same N batches in each epoch, and validate on N: a model that cannot overfit them "
            "has a bug [0]",
            config.overfit_batches, whole(0));
  flags.add("--sanity-val N", "run N validation batches before training, as a check [{}]", config.sanity_val,
            whole(0));
  flags.add_switch("--fast-dev-run",
                   "run one step and one validation batch to try everything, and save nothing; =N: N of each",
                   config.fast_dev_run, whole(1));
  flags.add("--nan-policy POLICY",
            "if a gradient is not finite: skip the step, up to 16 in a row; or stop, and name the op [skip]",
            config.stop_on_nan, one_of<bool>({{"skip", false}, {"stop", true}}));
  flags.on("--detect-anomaly", "the same as --nan-policy stop", config.stop_on_nan);
}

// Which weights are kept, when training ends, and which parts are frozen.
void add_weight_flags(FlagTable& flags, TrainerConfig& config) {
  flags.add("--ema DECAY", "validate and save an exponential moving average of the weights [none]",
            config.ema_decay, below_1);
  flags.add("--early-stop METRIC:PATIENCE",
            "stop when val_loss, val_accuracy or train_loss has not improved for PATIENCE validations, and "
            "keep the best weights by it or by --monitor; for another metric that the program logs: "
            "METRIC:PATIENCE:min or :max. "
            "More options, after commas: min_delta=X, mode=min|max, stop_at=X, diverge_at=X",
            config.early_stop, early_stop);
  flags.add(
      "--monitor METRIC",
      "keep the weights of the best validation, whenever training ends: val_loss, val_accuracy, train_loss, "
      "or for another metric that the program logs METRIC:min or :max [--early-stop's, else the last "
      "weights]",
      config.monitor, monitor);
  flags.add_each("--freeze PREFIX[:EPOCHS]",
                 "freeze the part of the network with this name (layer1, features.0), with its batch-norm "
                 "statistics, for the first EPOCHS or the whole run; may be given several times [none]",
                 config.freeze, freeze);
}

void add_data_flags(FlagTable& flags, TrainerConfig& config) {
  flags.group("Data");
  flags.add("--data-dir DIR", "folder that holds mnist/, cifar10/, ... [$ATHANOR_DATA_DIR, else data-cache]",
            config.data_dir, path);
  if (!config.models.empty()) {
    const char* const images_are = config.image_size > 0
                                       ? "name images without a flag, or with --train and --val"
                                       : "--data-dir names the folder of images";
    flags.add("--data KIND",
              "synthetic, or synthetic:N: N generated images (2,048) of the model's usual size, to try and "
              "time it without data [the program's]",
              config.synthetic_images, [images_are](Text flag, Text text) -> std::int64_t {
                ATH_CHECK(text == "synthetic" || text.starts_with("synthetic:"),
                          "{}: must be synthetic or synthetic:N, but got '{}'; {}", flag, text, images_are);
                return text == "synthetic" ? 2048 : whole(1, 10'000'000)(flag, text.substr(10));
              });
  }
  if (config.image_size > 0) {
    flags.add("--image-size PIXELS", "side length that images are resized to [{}]", config.image_size,
              whole(1, 65536));
    const auto where =
        one_of<ImageWork>({{"auto", ImageWork::automatic}, {"cpu", ImageWork::cpu}, {"gpu", ImageWork::gpu}});
    flags.add("--decode auto|cpu|gpu",
              "where JPEG files are decoded; gpu: by nvJPEG, whose pixels differ in the last bits; auto: cpu "
              "[auto]",
              config.decode, where);
    flags.add("--resize auto|cpu|gpu",
              "where images are cropped and resized, with equal results; auto: on the GPU, if there is one "
              "[auto]",
              config.resize, where);
    flags.add("PHOTOS PATH",
              "all images: a folder for each class, or other data; --val-split of them are for validation, "
              "the others for training",
              config.photos, path);
    flags.add("--val-split SHARE", "share of PHOTOS, within each class, to validate on [{}]",
              config.val_split, positive(1e-6, 1 - 1e-6));
    flags.add("--test PATH",
              "test images: evaluated once, at the end, and never used to choose weights [none]",
              config.test_data, path);
    flags.add("--train PATH", "training images [imagenet/train in --data-dir]", config.train_data, path);
    flags.add("--val PATH", "validation images [imagenet/val in --data-dir]", config.val_data, path);
  }
  flags.on(
      "--strict-data",
      "refuse data of which anything is not used, such as files of another type, and validation images that "
      "are also trained on; without, a line counts them",
      config.strict_data);
  flags.add("--workers,--num-workers N", "loader threads; auto, or 0 to load in the training thread [auto]",
            config.workers, word_or("auto", LoaderOptions::kAuto, whole(0, 1024)));
  flags.add("--persistent-workers on|off",
            "keep loader threads from one epoch to the next; off shows what that saves [on]",
            config.persistent_workers, on_or_off);
  flags.add("--pin-memory on|off", "put batches for a GPU into pinned memory; off shows what that saves [on]",
            config.pin_memory, on_or_off);
  flags.add("--prefetch N", "batches held in memory, including the one in use [{}]", config.prefetch,
            whole(1, 1024));
  flags.add("--bad-samples POLICY",
            "strict: a sample that cannot be read ends the run; skip[:LIMIT]: replace it with another, at "
            "most LIMIT times per epoch; list: first read all, and name all that cannot be read [strict]",
            config.bad_samples, bad_samples);
  flags.add("--order O", "order of images: random, or pages, for files larger than memory [random]",
            config.order, one_of<Order>({{"random", Order::random}, {"pages", Order::page_random}}));
  flags.on("--data-on-device", "keep in-memory data sets on the device", config.data_on_device);
}

}  // namespace athanor::detail
