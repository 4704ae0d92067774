// The settings, in the order of --help. Explained in docs/a_run_from_flag_to_file.md.

#include "trainer/flags/detail/settings_table.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <type_traits>

#include <fmt/ranges.h>

#include "data/formats/field_names.h"
#include "nn/models/model.h"
#include "tensor/base/nearest.h"

namespace athanor::detail {
namespace {

using namespace read_flag;
using C = TrainerConfig;
using Row = SettingRow;
using enum Same;
using enum InRecipe;

bool has_models(const C& config) {
  return !config.models.empty();
}
bool has_images(const C& config) {
  return config.image_size > 0;
}

std::string given_or_not(bool given) {
  return given ? "given" : "not given";
}

/// Of two texts of whole numbers: a resumed run may have more.
bool is_more(const std::string& saved, const std::string& value) {
  return saved.size() != value.size() ? saved.size() < value.size() : saved < value;
}

/// The same metric with the same goal, of two texts of an EarlyStop: what is saved of it stays valid.
bool watches_the_same(const std::string& saved, const std::string& value) {
  const auto watched = [](const std::string& text) {
    const char* const goal = text.find(":max") != text.npos   ? ":max"
                             : text.find(":min") != text.npos ? ":min"
                                                              : "";
    return text.substr(0, text.find_first_of(":, ")) + goal;
  };
  return watched(saved) == watched(value);
}

// Settings of several members -------------------------------------------------------------------------------

SettingValue model() {
  SettingValue value = field(&C::model, path);
  value.read = [](C& config, Text flag, Text text) {
    ATH_CHECK(std::find(config.models.begin(), config.models.end(), text) != config.models.end(),
              "{}: must be one of {}, but got '{}'{}", flag, fmt::join(config.models, " "), text,
              nn::did_you_mean_model(text, config.models));
    config.model = text;
  };
  return value;
}

std::string valid_field_names(Text /*flag*/, Text text) {
  (void)field_names(text);
  return text;
}

std::int64_t epochs(Text flag, Text text) {
  ATH_CHECK(
      text != "-1",
      "{}: must be a number, but got -1; if --max-time, --max-steps or --early-stop ends the run, use a "
      "large number",
      flag);
  return whole(1)(flag, text);
}

/// They replace what the program brings.
SettingValue optimizer() {
  static const auto names = [] {
    OneOf<OptimizerKind> all;
    for (const OptimizerEntry& entry : optimizer_table()) all.choices.emplace_back(entry.name, entry.kind);
    return all;
  }();
  return fields(
      [](C& config, Text flag, Text text) {
        config.optimizer_kind = names(flag, text);
        config.optimizer = {};
      },
      [](const C& config) { return std::string(name_of(config.optimizer_kind)); });
}
SettingValue schedule_options() {
  return fields(
      [](C& config, Text flag, Text text) {
        config.schedule_options = schedule(flag, text);
        config.schedule = {};
      },
      [](const C& config) { return text(config.schedule_options); });
}

SettingValue betas() {
  return fields(
      [](C& config, Text flag, Text text) {
        const std::vector<std::string> parts = split(text, ',');
        ATH_CHECK(parts.size() == 2, "{}: must be two numbers, as in 0.9,0.999, but got '{}'", flag, text);
        config.beta2 = share(flag, parts[1]);
        config.beta1 = share(flag, parts[0]);
      },
      [](const C& config) { return fmt::format("{},{}", config.beta1, config.beta2); });
}

const OneOf<LrScaling> kScalings{{{"linear", LrScaling::linear}, {"sqrt", LrScaling::sqrt}}};

SettingValue scale_lr() {
  return fields(
      [](C& config, Text flag, Text text) {
        config.lr_scaling = LrScaling::none;
        if (text == "none") return;
        const std::size_t colon = text.find(':');
        config.lr_scaling = kScalings(flag, text.substr(0, colon));
        ATH_CHECK(colon != std::string::npos,
                  "{}: must name the batch size that --lr was chosen for, as in {}:256, but got '{}'", flag,
                  text, text);
        config.lr_scaling_batch = whole(1)(flag, text.substr(colon + 1));
      },
      [](const C& config) {
        if (config.lr_scaling == LrScaling::none) return std::string("none");
        return fmt::format("{}:{}", kScalings.print(config.lr_scaling), config.lr_scaling_batch);
      });
}

const OneOf<ImageWork> kImageWork{
    {{"auto", ImageWork::automatic}, {"cpu", ImageWork::cpu}, {"gpu", ImageWork::gpu}}};

/// The program's crops while decoding stay.
SettingValue augmentation() {
  SettingValue value = field(&C::augment, augment);
  value.read = [](C& config, Text flag, Text text) {
    const bool when_decoded = config.augment.crops_when_decoded;
    config.augment = augment(flag, text);
    config.augment.crops_when_decoded = when_decoded;
  };
  return value;
}

/// DECAY, or DECAY:EVERY.
SettingValue average() {
  const auto decay = or_off(0.0, below_1);
  SettingValue value = field(&C::ema_decay, decay);
  const auto print_decay = value.print;
  value.read = [decay](C& config, Text flag, Text text) {
    const std::size_t colon = text.find(':');
    config.ema_decay = decay(flag, text.substr(0, colon));
    config.ema_every = colon == std::string::npos ? 1 : whole(1, 1'000'000)(flag, text.substr(colon + 1));
  };
  value.print = [print_decay](const C& config) {
    return print_decay(config) + (config.ema_every == 1 ? "" : fmt::format(":{}", config.ema_every));
  };
  return value;
}

/// "224", "192x320"; or sizes by epoch, whose last is then the size.
SettingValue size_of_images() {
  return fields(
      [](C& config, Text flag, Text text) {
        config.image_sizes.clear();
        if (text.find(':') != std::string::npos) config.image_sizes = image_sizes(flag, text);
        const ImageSize size =
            config.image_sizes.empty() ? image_size(flag, text) : config.image_sizes.back().size;
        config.image_size = size.height;
        config.image_width = size.width == size.height ? 0 : size.width;
      },
      [](const C& config) {
        return config.image_sizes.empty() ? text(config.size_of_images()) : text(config.image_sizes);
      });
}

/// Also the words of --resize-on, which had this name.
SettingValue resize_mode() {
  static const auto modes = named({ResizeMode::crop, ResizeMode::pad, ResizeMode::squash});
  SettingValue value = field(&C::resize, modes);
  value.read = [](C& config, Text flag, Text text) {
    for (const auto& [word, place] : kImageWork.choices)
      if (word == lower_case(text)) return void(config.resize_on = place);
    config.resize = modes(flag, text);
  };
  return value;
}

/// One number for each channel; none: measured.
SettingValue pixel_numbers(std::vector<double> C::*member, double low) {
  return fields(
      [=](C& config, Text flag, Text text) {
        std::vector<double> all;
        for (const std::string& part : split(text, ',')) {
          const auto value = number<double>(flag, part, "numbers separated by commas, one for each channel");
          ATH_CHECK(value >= low && value <= 1 && (value == 0 || std::isnormal(value)),
                    "{}: must be for bytes / 255, in [{}, 1], but got {}", flag, low, part);
          all.push_back(value);
        }
        config.*member = all;
      },
      [=](const C& config) { return fmt::format("{:.6g}", fmt::join(config.*member, ",")); });
}

/// "none": unset.
template <class Read> auto or_none(Read read) {
  return [read](Text flag, Text text) {
    using T = std::invoke_result_t<Read, Text, Text>;
    return text == "none" ? std::optional<T>() : std::optional<T>(read(flag, text));
  };
}

std::string path_or_none(Text flag, Text text) {
  return text == "none" ? "" : path(flag, text);
}

std::vector<Freeze> freezes(Text flag, Text text) {
  std::vector<Freeze> all;
  if (text == "none") return all;
  for (const std::string& one : split(text, ' ')) all.push_back(freeze(flag, one));
  return all;
}

/// A switch is one step.
std::int64_t steps_tried(Text flag, Text text) {
  return text == "true" ? 1 : or_off(std::int64_t{0}, whole(1))(flag, text);
}

auto limit(std::int64_t least) {
  return [least](Text flag, Text text) { return batch_limit(flag, text, least); };
}

TrainingLength interval(Text flag, Text text) {
  const TrainingLength every = training_length(flag, text);
  ATH_CHECK(every.count > 0, "{}: must be above 0, but got {}", flag, text);
  return every;
}

SettingValue data_kind() {
  return fields(
      [](C& config, Text flag, Text text) {
        ATH_CHECK(text == "synthetic" || text.starts_with("synthetic:"),
                  "{}: must be synthetic or synthetic:N, but got '{}'; {}", flag, text,
                  has_images(config) ? "name images without a flag, or with --train and --val"
                                     : "--data-dir names the folder of images");
        config.synthetic_images = text == "synthetic" ? 2048 : whole(1, 10'000'000)(flag, text.substr(10));
      },
      [](const C& config) {
        return config.synthetic_images > 0 ? fmt::format("synthetic:{}", config.synthetic_images) : "";
      });
}

SettingValue device_choice() {
  return fields([](C& config, Text flag, Text text) {
    const DeviceChoice choice = device(flag, text);
    config.device = choice.device;
    config.device_note = choice.note;
  });
}

SettingValue run_dir() {
  SettingValue value = field(&C::run_dir, path);
  value.read = [](C& config, Text flag, Text text) {
    config.run_root.clear();
    config.run_dir = text == "none" ? "" : path(flag, text);
  };
  return value;
}

SettingValue checkpoint_every() {
  return fields(
      [](C& config, Text flag, Text text) {
        config.checkpoint_every = text.ends_with("min") ? 0 : whole(1)(flag, text);
        if (config.checkpoint_every == 0)
          config.checkpoint_every_s = 60 * positive(1e-3, 1e7)(flag, text.substr(0, text.size() - 3));
      },
      [](const C& config) {
        return std::isinf(config.checkpoint_every_s) ? fmt::to_string(config.checkpoint_every)
                                                     : fmt::format("{}min", config.checkpoint_every_s / 60);
      });
}

SettingValue loggers() {
  return fields([](C& config, Text flag, Text text) {
    const std::vector<std::string> names{"json", "csv", "tensorboard", "none"}, asked = split(text, ',');
    const auto has = [](const std::vector<std::string>& words, const std::string& word) {
      return std::find(words.begin(), words.end(), word) != words.end();
    };
    for (const std::string& name : asked)
      ATH_CHECK(has(names, name), "{}: must be a list of json, csv and tensorboard, or none, but got '{}'{}",
                flag, name, did_you_mean(name, names));
    ATH_CHECK(!has(asked, "none") || asked.size() == 1,
              "{}: none cannot be combined with other formats, but got '{}'", flag, text);
    config.log_json = has(asked, "json");
    config.log_csv = has(asked, "csv");
    config.log_tensorboard = has(asked, "tensorboard");
  });
}

/// By default it is not given, whatever --nan-policy is.
SettingValue detect_anomaly() {
  return fields([](C& config, Text flag, Text text) { config.stop_on_nan = Switch()(flag, text); },
                [](const C&) { return std::string("false"); });
}

SettingValue ask(Question question) {
  return fields(
      [question](C& config, Text flag, Text text) {
        if (Switch()(flag, text)) config.question = question;
      },
      [](const C&) { return std::string("false"); });
}

const OneOf<bool> kNanPolicies{{{"skip", false}, {"stop", true}}};
const OneOf<FreezeNorms> kFreezeNorms{{{"none", FreezeNorms::none},
                                       {"statistics", FreezeNorms::statistics},
                                       {"all", FreezeNorms::all},
                                       {"true", FreezeNorms::statistics}}};
const OneOf<Decay> kDecays{{{"matrices", Decay::matrices}, {"all", Decay::all}}};

// The table -------------------------------------------------------------------------------------------------

std::vector<SettingRow> training() {
  return {
      flag("--model NAME", "one of {1} [{0}]", model(), run, always).with(&Row::offered, has_models),
      flag("--epochs,--max-epochs N", "passes over the training set [{}]", &C::epochs, epochs, run, always)
          .with(&Row::may_follow, is_more),
      flag("--max-steps N", "stop after N steps, skipped ones included [no limit]", &C::max_steps,
           WordOr{"-1", -1, whole(1)}),
      flag("--max-time TIME",
           "stop after this much training time, including time before --resume: SECONDS, HH:MM:SS or "
           "DD:HH:MM:SS [no limit]",
           &C::max_time_s,
           [](Text flag, Text text) {
             return text == "none" ? std::numeric_limits<double>::infinity() : max_time(flag, text);
           }),
      flag("--batch-size N", "images per backward pass, over all devices [{}]", &C::batch_size, whole(1), run,
           always),
      flag("--val-batch-size N", "images per validation batch [the larger of --batch-size and 256]",
           &C::val_batch_size, whole(1), run),
      flag("--accumulate,--accumulate-grad-batches N", "backward passes per step [{}]", &C::accumulate,
           whole(1, 1'000'000), run, always),
      flag("--clip-norm,--gradient-clip-val X", "clip the norm of all gradients together to X [none]",
           &C::clip_norm, or_off(0.0, positive(1e-30, 1e15)), run),
      flag("--clip-value X", "clip each gradient to [-X, X], after --clip-norm [none]", &C::clip_value,
           or_off(0.0, positive(1e-30, 1e15)), run),
      flag("--skip-outliers Z", "skip steps whose gradient norm is Z deviations above its mean [none]",
           &C::skip_outliers, or_off(0.0, positive(1e-3, 1e6)), run),
      flag("--seed N", "random seed: initial weights, order and augmentation of images, dropout [{}]",
           &C::seed, seed, run, always),
  };
}

std::vector<SettingRow> recipe() {
  return {
      flag("--recipe FILE",
           "read flags from a file with NAME = \"VALUE\" in each line, such as recipe.toml of a run; the "
           "command line takes precedence [none]",
           &C::recipe, path, unchecked, never),
      flag("--optimizer NAME", "sgd, adam, adamw, or muon for matrices with adamw for the rest [{}]",
           optimizer(), unchecked, always)  // compared as what the networks have
          .with(&Row::shown,
                [](const C& config) {
                  return std::string(config.optimizer ? "the program's" : name_of(config.optimizer_kind));
                }),
      flag("--lr RATE",
           "highest learning rate; the program's is lowered for smaller batches than its own [{}]", &C::lr,
           positive(), run, always),
      flag("--momentum MU", "momentum of sgd and muon [{}]", &C::momentum, share, run, always),
      flag("--nesterov on|off", "use Nesterov momentum [{}]", &C::nesterov, OnOrOff(), run, always),
      flag("--betas B1,B2", "decay rates of adam's and adamw's moving averages [{}]", betas(), run, always),
      flag("--weight-decay,--wd X", "weight decay coefficient [{}]", &C::weight_decay, not_negative, run,
           always),
      flag("--decay WHAT",
           "parameters that --weight-decay applies to: matrices (and filters) only, or all, as in PyTorch "
           "[{}]",
           &C::decay, kDecays, run, always),
      flag("--schedule KIND",
           "learning rate schedule: constant; step:EPOCHS[:FACTOR]; multistep:E1,E2,...[:FACTOR]; cosine; "
           "linear; one-cycle; plateau[:PATIENCE[:FACTOR]], which lowers the rate when --monitor or val_loss "
           "stops "
           "improving [{}]",
           schedule_options(), run, always)
          .with(&Row::shown,
                [](const C& config) {
                  return config.schedule ? "the program's" : text(config.schedule_options);
                }),
      flag("--warmup N[e]",
           "steps, or epochs (as in 5e), in which the rate rises from near 0 [none; with one-cycle a quarter "
           "of the run]",
           &C::warmup, training_length, run),
      flag("--min-lr RATE", "lowest learning rate after the warm-up [0; one-cycle: --lr / 25,000]",
           &C::min_lr, not_negative, run),
      flag("--scale-lr RULE:BATCH",
           "linear:256 or sqrt:256: --lr was chosen for batch size 256; scale it with the batch size or its "
           "square root [none]",
           scale_lr(), run),
      flag("--task TASK",
           "what is known of each image: classify, one class; multilabel, any number of classes; regression, "
           "one number or several [classify]",
           &C::task, named({LabelKind::classes, LabelKind::multilabel, LabelKind::values}), run, always)
          .with(&Row::offered, has_images),
      // A custom task handles its own losses and layers.
      flag("--loss LOSS",
           "cross-entropy, bce or focal[:GAMMA[:ALPHA]]; with --task multilabel bce or focal; with --task "
           "regression mse, l1 or huber[:DELTA] [the first of these]",
           &C::loss, task_loss, run)
          .with(&Row::offered, has_models),
      flag("--label-smoothing X", "share of a label's weight that is spread over all classes [{}]",
           &C::label_smoothing, share, run, always)
          .with(&Row::offered, has_models),
      flag("--class-weights KIND",
           "balanced: the training loss weighs classes with fewer images more; NAME=W,NAME=W: it is "
           "multiplied by W for images of that class; or none [none]",
           &C::class_weights, class_weights, run)
          .with(&Row::offered, has_models),
      flag("--sample-weights",
           "multiply the training loss of an image by the number in its field 'weight', a column of a table",
           &C::sample_weights, Switch(), run)
          .with(&Row::offered, has_models),
      flag("--dropout PROB", "drop probability of the model's dropout layers [the model's own]", &C::dropout,
           share, run)
          .with(&Row::offered, has_models),
      flag("--drop-path PROB",
           "stochastic depth: probability that an image skips the model's last block, falling linearly to 0 "
           "at the first [the model's own]",
           &C::drop_path, share, run)
          .with(&Row::offered, has_models),
      flag("--layer-decay X",
           "multiply the learning rate by X from each block of the model to the one before it, for "
           "fine-tuning, such as 0.75 [none]",
           &C::layer_decay, or_off(1.0, positive(1e-3, 1)), run)
          .with(&Row::offered, has_models),
      flag("--repeated-aug,--aug-repeats N",
           "each image N times in a row, augmented differently, in an epoch of as many images as without: "
           "one of N images, drawn again in each [1]",
           &C::repeated_aug, or_off(std::int64_t{1}, whole(1, 256)), run),
      flag("--augment LIST",
           "random augmentations of training images, separated by commas: crop:PIXELS[:reflect], "
           "resized-crop[:MINAREA], flip, alternating-flip, vertical-flip, rotation:DEGREES, blur[:P], "
           "color-jitter[:B:C:S:H], rand-augment[:N:M], trivial-augment, random-erasing[:P], cutout:SIDE, "
           "mixup[:ALPHA], cutmix[:ALPHA]; or none [{}]",
           augmentation(), run, always),
      flag("--ema DECAY[:EVERY]",
           "validate and save an exponential moving average of the weights, updated in each step or every "
           "EVERY steps; at first it follows the weights faster [none]",
           average(), run),
      flag("--early-stop METRIC:PATIENCE",
           "stop when val_loss, val_accuracy or train_loss has not improved for PATIENCE validations, and "
           "keep the best weights by it or by --monitor; for another metric that the program logs: "
           "METRIC:PATIENCE:min or :max. "
           "More options, after commas: min_delta=X, mode=min|max, stop_at=X, diverge_at=X",
           &C::early_stop, or_none(early_stop), run)
          .with(&Row::may_follow, watches_the_same),
      flag("--monitor METRIC",
           "keep the weights of the best validation, whenever training ends: val_loss, val_accuracy, "
           "train_loss, or for another metric that the program logs METRIC:min or :max [--early-stop's, else "
           "the last weights]",
           &C::monitor, or_none(monitor), run),
      flag("--freeze PREFIX[:EPOCHS]",
           "freeze the part of the network with this name (layer1, features.0), with its batch-norm "
           "statistics, for the first EPOCHS or the whole run; may be given several times [none]",
           &C::freeze, freezes, run)
          .with(&Row::takes, Takes::values),
      flag("--freeze-bn",
           "batch norms normalise by their running statistics, which stay as they are; =all: their scales "
           "and shifts stay, too",
           &C::freeze_norms, kFreezeNorms, run)
          .with(&Row::takes, Takes::optional),
  };
}

std::vector<SettingRow> validation_and_limits() {
  return {
      flag("--val-every N[e]", "validate every N steps, or every N epochs (as in 2e) [{}]", &C::val_every,
           interval, run),
      flag("--tta VIEWS",
           "test-time augmentation: validate by the mean logits of views of each image: flip, the image and "
           "its mirror image; six, these and their shifts by a pixel; or none [{}]",
           &C::tta, test_views(), run)
          .with(&Row::offered, has_models),
      flag("--limit-train-batches N",
           "train on N batches of each epoch, or on a share of them, such as 0.1 [1.0]",
           &C::limit_train_batches, limit(1), run),
      flag("--limit-val-batches N", "validate on N batches, or on a share of them; 0: never [1.0]",
           &C::limit_val_batches, limit(0), run),
      flag("--overfit-batches N",
           "train on the same N batches in each epoch, and validate on N: a model that cannot overfit them "
           "has a bug [0]",
           &C::overfit_batches, whole(0), run),
      flag("--sanity-val N", "run N validation batches before training, as a check [{}]", &C::sanity_val,
           whole(0)),
      flag("--fast-dev-run",
           "run one step and one validation batch to try everything, and save nothing; =N: N of each",
           &C::fast_dev_run, steps_tried, ranks, never)
          .with(&Row::takes, Takes::optional),
      flag("--nan-policy POLICY",
           "if a gradient is not finite: skip the step, up to 16 in a row; or stop, and name the op [skip]",
           &C::stop_on_nan, kNanPolicies),
      flag("--detect-anomaly", "the same as --nan-policy stop", detect_anomaly()),
  };
}

std::vector<SettingRow> data() {
  return {
      flag("--data-dir DIR", "folder that holds mnist/, cifar10/, ... [$ATHANOR_DATA_DIR, else data-cache]",
           &C::data_dir, path, unchecked, never),
      flag("--data KIND",
           "synthetic, or synthetic:N: N generated images (2,048) of the model's usual size, to try and time "
           "it without data [the program's]",
           data_kind(), run)
          .with(&Row::offered, has_models),
      flag("--image-size PIXELS",
           "side length that images are resized to, or HEIGHTxWIDTH as in 192x320; or progressive sizes of "
           "training images by epoch: 160:0,192:10 is 160 in the first 10 epochs, then 192 [{}]",
           size_of_images(), run)
          .with(&Row::offered, has_images)
          .with(&Row::compared, [](const C& config) { return text(config.image_sizes); }),
      flag("--val-image-size PIXELS",
           "size of validation images, and of those that the saved model takes [the last of --image-size]",
           &C::val_image_size, image_size, run)
          .with(&Row::offered, has_images),
      flag("--resize crop|pad|squash",
           "of images with another aspect ratio: crop what is beyond it; pad what is missing (letterbox); or "
           "squash them [{}]",
           resize_mode(), run)
          .with(&Row::offered, has_images),
      flag("--crop-share,--crop-pct X",
           "with --resize crop, how much of each side the central crop takes that validates [{}]",
           &C::crop_share, positive(kMinCropShare, 1), run)
          .with(&Row::offered, has_images),
      flag("--pad-value BYTE", "with --resize pad, the brightness of what is added, 0 to 255 [{}]",
           &C::padding, whole(0, 255), run)
          .with(&Row::offered, has_images),
      flag("--interpolation KIND",
           "between pixels, when images are resized: bilinear or bicubic, both antialiased, or nearest [{}]",
           &C::interpolation, named({Resampling::bilinear, Resampling::bicubic, Resampling::nearest}), run)
          .with(&Row::offered, has_images),
      flag("--mean X,X,X",
           "mean of pixels / 255 to subtract, one number for each channel [the program's, else measured]",
           pixel_numbers(&C::pixel_mean, 0))
          .with(&Row::offered, has_models),
      flag("--std X,X,X",
           "deviation of pixels / 255 to divide by, one number for each channel [the program's, else "
           "measured]",
           pixel_numbers(&C::pixel_stddev, 1e-3))
          .with(&Row::offered, has_models),
      flag("--decode auto|cpu|gpu",
           "where JPEG files are decoded; gpu: by nvJPEG, whose pixels differ in the last bits; auto: cpu "
           "[auto]",
           &C::decode, kImageWork, run)
          .with(&Row::offered, has_images)
          .with(&Row::compared,
                [](const C& config) { return std::string(config.decode == ImageWork::gpu ? "gpu" : "cpu"); }),
      flag("--resize-on auto|cpu|gpu",
           "where images are cropped and resized, with equal results; auto: on the GPU, if there is one "
           "[auto]",
           &C::resize_on, kImageWork)
          .with(&Row::offered, has_images),
      flag("PHOTOS PATH",
           "all images: a folder for each class, or other data; --val-split of them are for validation, the "
           "others for training",
           &C::photos, path, unchecked, never)
          .with(&Row::offered, has_images),
      flag("--val-split SHARE", "share of PHOTOS, within each class, to validate on [{}]", &C::val_split,
           positive(1e-6, 1 - 1e-6))
          .with(&Row::offered, has_images),
      flag("--test PATH", "test images: evaluated once, at the end, and never used to choose weights [none]",
           &C::test_data, path, unchecked, never)
          .with(&Row::offered, has_images),
      flag("--train PATH",
           "training images; a set in several files: 'x-*.tar', a range in braces, or names by commas "
           "[imagenet/train in --data-dir]",
           &C::train_data, path, unchecked, never)
          .with(&Row::offered, has_images),
      flag("--val PATH", "validation images [imagenet/val in --data-dir]", &C::val_data, path, unchecked,
           never)
          .with(&Row::offered, has_images),
      flag("--fields NAMES",
           "image=NAME,label=NAME: what HDF5, LMDB, TFRecord, npz and tar data and tables call them; the "
           "labels "
           "of HDF5 may lie in another file, label=FILE:NAME; a table may have several, label=A,B,C [the "
           "usual "
           "names]",
           &C::fields, valid_field_names, unchecked, never)
          .with(&Row::offered, has_images),
      flag("--strict-data",
           "refuse data of which anything is not used, such as files of another type, and validation images "
           "that are also trained on; without, a line counts them",
           &C::strict_data, Switch()),
      flag("--workers,--num-workers N", "loader threads; auto, or 0 to load in the training thread [auto]",
           &C::workers, WordOr{"auto", LoaderOptions::kAuto, whole(0, 1024)}, unchecked, never),
      flag("--persistent-workers on|off",
           "keep loader threads from one epoch to the next; off shows what that saves [on]",
           &C::persistent_workers, OnOrOff()),
      flag("--pin-memory on|off", "put batches for a GPU into pinned memory; off shows what that saves [on]",
           &C::pin_memory, OnOrOff()),
      flag("--prefetch N", "batches held in memory, including the one in use [{}]", &C::prefetch,
           whole(1, 1024)),
      flag("--bad-samples POLICY",
           "strict: a sample that cannot be read ends the run; skip[:LIMIT]: replace it with another, at "
           "most LIMIT times per epoch; list: first read all, and name all that cannot be read [strict]",
           &C::bad_samples, bad_samples),
      flag("--order O", "order of images: random, or pages, for files larger than memory [{}]", &C::order,
           named({Order::random, Order::page_random}), run),
      flag("--sampler KIND",
           "draw the training samples of an epoch with replacement: balanced, all classes equally often; "
           "weights, in proportion to the number in their field 'weight'; none: each sample once [none]",
           &C::sampler, named({Sampler::none, Sampler::balanced, Sampler::weights}), run),
      flag("--data-on-device", "keep in-memory data sets on the device", &C::data_on_device, Switch()),
  };
}

std::vector<SettingRow> device_and_precision() {
  return {
      flag("--threads N",
           "CPU threads per rank; auto: one or all, whichever is faster in ten trial steps [{}]", &C::threads,
           WordOr{"auto", C::kMeasuredThreads, whole(1, 1024)}, unchecked, never)
          .with(&Row::shown,
                [](const C& config) {
                  return config.threads > 0 ? fmt::to_string(config.threads)
                                            : "one per core, divided among ranks";
                }),
      flag("--precision P", "f32, tf32 (on a GPU), or bf16 or f16 with f32 master weights [{}]",
           fields([](C& config, Text flag, Text text) { config.precision = precision(flag, text); },
                  [](const C& config) { return std::string(name_of(config.precision)); }),
           run, always),
      flag("--loss-scale S", "dynamic, dynamic:FIRST, or a constant scale [dynamic for f16, else 1]",
           &C::loss_scaling, loss_scaling, run),
      flag("--grad-dtype T", "dtype of gradients: auto or f32 [auto: the precision's; f32 with --accumulate]",
           &C::f32_gradients, OneOf<bool>{{{"auto", false}, {"f32", true}}}, run),
      flag("--device,--accelerator D", "auto, cpu or cuda[:N] [auto]", device_choice(), unchecked, never),
      flag("--memory-limit BYTES",
           "most memory that tensors may take, such as 500000000 or 2G [on the CPU, nearly all free memory]",
           &C::memory_limit, or_off(std::int64_t{0}, byte_count), unchecked, never),
      flag("--fused on|off",
           "fuse activations and residual sums into convolutions, linear layers and norms; off shows what "
           "fusion saves [{}]",
           &C::fused, OnOrOff(), run),
      flag("--inference-mode on|off",
           "validate without recording the autograd graph; off shows what that saves [on]",
           &C::inference_mode, OnOrOff()),
      flag("--empty-cache on|off",
           "return cached memory to the system after each step; on shows what that costs [off]",
           &C::empty_cache, OnOrOff()),
      flag("--sync-each-step on|off",
           "wait for the device after each step, as code that reads the loss does; on shows what that costs "
           "[off]",
           &C::sync_each_step, OnOrOff()),
      flag(
          "--graph G",
          "capture a step's GPU work once as a CUDA graph, then launch the whole graph; results do not "
          "change: on, off, or auto (if possible) [auto]",
          &C::graph,
          OneOf<GraphMode>{{{"auto", GraphMode::automatic}, {"on", GraphMode::on}, {"off", GraphMode::off}}}),
      flag("--deterministic", "same seed, flags and threads: same weights, bit for bit", &C::deterministic,
           Switch()),
      flag("--benchmark",
           "on the CPU, time all implementations of each convolution in a trial step, and use the fastest; a "
           "GPU does so without this flag",
           &C::benchmark, Switch()),
  };
}

std::vector<SettingRow> several_devices() {
  using dist::Algorithm;
  const auto algorithm = [](auto& config) -> auto& {
    return config.collectives.algorithm;
  };
  const auto timeout = [](auto& config) -> auto& {
    return config.collectives.timeout;
  };
  return {
      flag("--devices N",
           "ranks (processes that share the work): one per GPU, or any number on the CPU; auto: all GPUs [1]",
           &C::devices, WordOr{"auto", C::kAllDevices, devices}, unchecked, never),
      flag("--strategy S",
           "single: one rank; ddp: each rank has the whole model; zero1: like ddp, but master weights and "
           "optimizer state are sharded [single; with several ranks ddp]",
           &C::strategy, named({Strategy::automatic, Strategy::single, Strategy::ddp, Strategy::zero1})),
      flag("--algorithm A",
           "how ranks sum gradients: rank_order, ring, hierarchical, native (MPI's or NCCL's own), or auto: "
           "native between GPUs of several machines without --deterministic, else rank_order [auto]",
           algorithm,
           named({Algorithm::automatic, Algorithm::rank_order, Algorithm::ring, Algorithm::hierarchical,
                  Algorithm::native}),
           ranks),
      flag("--overlap on|off", "overlap the communication of gradients and weights with computation [on]",
           &C::overlap, OnOrOff()),
      flag("--sync-bn", "compute batch-norm statistics over the images of all ranks, not of each rank alone",
           &C::sync_bn, Switch(), run),
      flag("--dist-timeout SECONDS", "end all ranks after a rank has not responded for SECONDS [{}]", timeout,
           seconds)
          .with(&Row::shown,
                [](const C& config) { return fmt::to_string(config.collectives.timeout.count() / 1000); }),
      flag("--max-restarts N",
           "how often --devices restarts its ranks from the newest checkpoint after losing one; needs "
           "--resume auto [0]",
           &C::max_restarts, whole(0, 1000), unchecked, never),
      flag("--flight-dir DIR",
           "folder for flight records, which ranks write when one is lost; see athanor flight "
           "[--checkpoint-dir, else the current folder]",
           &C::flight_dir, path, unchecked, never),
  };
}

std::vector<SettingRow> checkpoints_and_reports() {
  return {
      flag("--metrics FILE",
           "append JSON lines: one per logged step and per epoch, one at the end [metrics.jsonl of "
           "--run-dir, else none]",
           &C::metrics, path, unchecked, never),
      flag("--profile,--profiler KIND",
           "simple: show at the end where the time went, by part and by op; advanced: also by layer; trace: "
           "write trace.json for Perfetto to --run-dir [none]",
           &C::profile,
           OneOf<Profile>{{{"none", Profile::none},
                           {"simple", Profile::simple},
                           {"advanced", Profile::advanced},
                           {"trace", Profile::trace}}}),
      flag("--progress on|off", "print progress to stdout; off prints errors only [on]", &C::progress,
           OnOrOff()),
      flag("--forbid-sync", "fail if a step waits for the device", &C::forbid_sync, Switch()),
      flag("--run-dir DIR|none",
           "folder of the run, for its weights, metrics.jsonl, checkpoints/ and pictures in samples/, unless "
           "other flags name places for them [the next of {}/1, 2, ...]",
           run_dir(), unchecked, never)
          .with(&Row::shown,
                [](const C& config) { return config.run_root.empty() ? "runs" : config.run_root.string(); }),
      flag("--report on|off", "report.html in the run's folder: curves, times, mistakes [on]", &C::report,
           OnOrOff()),
      flag("--checkpoint-dir DIR",
           "save checkpoints in DIR, and keep the newest [checkpoints/ of --run-dir, else none]",
           &C::checkpoint_dir, path, ranks, never)
          .with(&Row::compared, [](const C& config) { return given_or_not(!config.checkpoint_dir.empty()); }),
      flag("--checkpoint-every STEPS|Nmin",
           "save every STEPS steps (skipped ones included) or every N minutes, and at the end; SIGUSR1 saves "
           "at once [once per epoch]",
           checkpoint_every(), ranks),
      flag("--keep N", "number of newest checkpoints to keep [{}]", &C::checkpoint_keep, whole(1)),
      flag("--save-top-k K", "save after each epoch, and also keep the best K by --monitor [none]",
           &C::save_top_k, or_off(std::int64_t{0}, whole(1))),
      flag("--async-checkpoints",
           "write checkpoints in the background, from a copy in memory as large as the checkpoint",
           &C::async_checkpoints, Switch()),
      flag("--resume auto|FILE",
           "resume from a checkpoint, with the flags of its run; auto: the newest valid one in "
           "--checkpoint-dir or --run-dir, or of the newest unfinished run with these settings; if there is "
           "none, start fresh",
           &C::resume, path_or_none, ranks, never)
          .with(&Row::compared, [](const C& config) { return given_or_not(!config.resume.empty()); }),
      // A task's networks are initialised by the program.
      flag(
          "--pretrained FILE|NAME",
          "initial weights: a run's folder or model, a checkpoint, or safetensors or a .pth of torchvision's "
          "or timm's model of this name; or a name of what scripts/get_weights.sh has fetched, imagenet for "
          "the model's own; if the number of classes differs, the last layer starts from random weights "
          "[random]",
          &C::pretrained, path_or_none)
          .with(&Row::offered, has_models),
      flag(
          "--pretrained-ema on|off",
          "with --pretrained: from a checkpoint that holds weights and a running average of them (EMA), take "
          "the average [on]",
          &C::pretrained_ema, OnOrOff())
          .with(&Row::offered, has_models),
      flag("--reset-head",
           "with --pretrained: the last layer starts from random weights, even if the number of classes is "
           "the same",
           &C::reset_head, Switch())
          .with(&Row::offered, has_models),
      flag("--validate-only",
           "train nothing: evaluate the model.safetensors of --pretrained, or of the newest run, on the "
           "validation images, as athanor evaluate does",
           &C::validate_only, Switch(), unchecked, never)
          .with(&Row::offered, has_models),
      flag("--logger LIST",
           "log formats for the metrics of steps and epochs, in the run's folder: json (metrics.jsonl), csv "
           "(metrics.csv), tensorboard (events.out.tfevents...), several separated by commas, or none [json]",
           loggers()),
      flag("--log-every N", "log every N-th step, without waiting for the device [{}]", &C::log_every,
           whole(1)),
      flag("--summary",
           "show each layer's output, parameters, FLOPs and activations for one image, then train",
           &C::summary, Switch()),
  };
}

std::vector<SettingRow> finders() {
  return {
      flag("--find-lr",
           "suggest --lr: take 100 steps with rates from 1e-7 to 10, and find where the loss falls fastest; "
           "trains nothing",
           ask(Question::learning_rate)),
      flag("--lr-curve FILE", "chart that --find-lr draws [lr_curve.svg in --run-dir, else next to the runs]",
           &C::lr_curve, path),
      flag("--find-batch-size",
           "suggest --batch-size: find the largest that fits in memory, and the fastest; trains nothing",
           ask(Question::batch_size)),
  };
}

std::vector<SettingRow> without_a_flag() {
  return {
      flag("phase PHASE", "", &C::phase, path, ranks),
      flag("max_overflows_at_floor N", "", &C::max_overflows_at_floor, whole(1), ranks),
      flag("views N", "{}", &C::views, whole(1), run),
      flag("local_ranks N", "", &C::local_ranks, whole(1)),
  };
}

}  // namespace

const std::vector<SettingGroup>& settings_table() {
  static const std::vector<SettingGroup> table{{"Training", training()},
                                               {"Recipe", recipe()},
                                               {"Validation and limits", validation_and_limits()},
                                               {"Data", data()},
                                               {"Device and precision", device_and_precision()},
                                               {"Several devices", several_devices()},
                                               {"Checkpoints and reports", checkpoints_and_reports()},
                                               {"Finders", finders()},
                                               {"", without_a_flag()}};
  return table;
}

const SettingRow* find_setting(const std::string& name) {
  for (const SettingGroup& group : settings_table()) {
    for (const SettingRow& row : group.rows)
      if (row.name() == name) return &row;
  }
  return nullptr;
}

std::string SettingRow::key() const {
  std::string key = name();
  key.erase(0, key.find_first_not_of('-'));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string SettingRow::value_name() const {
  const std::size_t space = usage.find(' ');
  return space == std::string::npos ? "" : usage.substr(space + 1);
}

std::string SettingRow::help_of(const TrainerConfig& defaults) const {
  if (takes == Takes::nothing) return help;
  return fmt::format(fmt::runtime(help), shown ? shown(defaults) : value.print(defaults),
                     fmt::join(defaults.models, " "));
}

std::string SettingRow::standard(const TrainerConfig& defaults) const {
  const bool as_is = value.as_is || takes == Takes::nothing || takes == Takes::optional;
  if (const std::string value_itself = as_is ? value.print(defaults) : ""; !value_itself.empty())
    return value_itself;
  const std::string text = help_of(defaults);
  const std::size_t open = text.rfind('['), close = text.rfind(']');
  return open == std::string::npos || close < open ? "" : text.substr(open + 1, close - open - 1);
}

}  // namespace athanor::detail
