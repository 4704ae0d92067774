#include "trainer/flags/detail/rules.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "optim/step.h"
#include "tensor/base/error.h"
#include "tensor/stream.h"
#include "trainer/flags/detail/settings_table.h"
#include "trainer/inference/named_weights.h"

namespace athanor {
namespace detail {
namespace {

/// Optimizers bring their usual settings. Rates of sgd that suit classes let squared errors diverge: the last
/// layer's curvature grows with its inputs.
void fit_to_optimizer(const IsGiven& given, TrainerConfig& config) {
  const bool of_task = config.task == LabelKind::values && !given("--optimizer");
  if (of_task) config.optimizer_kind = OptimizerKind::adamw;
  if (!of_task && !given("--optimizer")) return;
  const OptimizerEntry& usual = entry_of(config.optimizer_kind);
  if (!given("--lr") && usual.lr >= 0) config.lr = usual.lr;
  if (!given("--weight-decay") && usual.weight_decay >= 0) config.weight_decay = usual.weight_decay;
  if (!given("--momentum") && usual.usual_momentum >= 0) config.momentum = usual.usual_momentum;
}

/// Alone, --monitor is an early stop without patience; beside an --early-stop of the same metric it is
/// nothing.
void combine_monitor(TrainerConfig& config, bool stops_early) {
  if (!stops_early) {
    config.early_stop = std::exchange(config.monitor, std::nullopt);
  } else if (config.monitor->metric == config.early_stop->metric) {
    ATH_CHECK(
        !config.monitor->goal || config.monitor->goal_or_default() == config.early_stop->goal_or_default(),
        "--monitor: must ask for the same of {} as --early-stop does, but one says min and one max",
        config.monitor->metric);
    config.monitor.reset();
  }
}

/// Losses and options of classes alone.
void fit_to_task(const IsGiven& given, TrainerConfig& config) {
  (void)loss_for(config.task, config.loss);
  if (config.task == LabelKind::classes) return;
  if (!given("--label-smoothing")) config.label_smoothing = 0;
  if (config.task == LabelKind::multilabel) return;
  ATH_CHECK(!config.augment.mixes(),
            "--augment: mixup and cutmix mix labels, which numbers are not; leave them out with --task {}",
            name_of(config.task));
  const ClassWeights& weights = config.class_weights;
  for (const auto& [flag, is_on] : {std::pair("--label-smoothing", config.label_smoothing > 0),
                                    {"--class-weights", weights.balanced || !weights.of.empty()}})
    ATH_CHECK(!is_on, "{}: is for classes; cannot be combined with --task {}", flag, name_of(config.task));
}

void leave_nothing_behind(TrainerConfig& config) {
  config.run_dir.clear();
  config.run_root.clear();
  config.checkpoint_dir.clear();
  config.checkpoint_every = 0;
  config.checkpoint_every_s = std::numeric_limits<double>::infinity();
  config.save_top_k = 0;
  config.log_csv = config.log_tensorboard = false;
}

}  // namespace

void combine_flags(const IsGiven& given, const TrainerConfig& defaults, TrainerConfig& config) {
  fit_to_optimizer(given, config);
  if (!given("--lr") && config.lr_scaling == LrScaling::none && !defaults.schedule)  // else it has its own
    fit_usual_rate(config, images_of_step(defaults));
  fit_to_task(given, config);
  if (!config.photos.empty() && config.val_data.empty())  // the validation images must stay the same
    config.own_flags.push_back({"--val-split", fmt::format("{}", config.val_split)});
  ATH_CHECK(config.photos.empty() || config.train_data.empty(),
            "--train: cannot be combined with PHOTOS, which also names the training images");
  ATH_CHECK(!given("--detect-anomaly") || !given("--nan-policy"),
            "--nan-policy: cannot be combined with --detect-anomaly, which means --nan-policy stop");
  if (given("--monitor") && config.monitor)
    combine_monitor(config, given("--early-stop") && config.early_stop);
}

void fit_to_trial(const IsGiven& given, TrainerConfig& config) {
  const std::filesystem::path folder = config.run_dir.empty() ? config.run_root : config.run_dir;
  if (config.fast_dev_run > 0 && config.resume.empty()) leave_nothing_behind(config);
  ATH_CHECK(!given("--find-lr") || !given("--find-batch-size"),
            "--find-lr: cannot be combined with --find-batch-size; find the batch size first");
  const bool curve = config.question == Question::learning_rate;
  ATH_CHECK(curve || config.lr_curve.empty(), "--lr-curve: needs --find-lr, which draws it");
  if (config.question == Question::none) return;
  const char* const name = curve ? "--find-lr" : "--find-batch-size";
  ATH_CHECK(config.resume.empty(), "{}: cannot be combined with --resume; use it before a run starts", name);
  ATH_CHECK(config.fast_dev_run == 0 && !config.validate_only,
            "{}: takes its own trial steps; cannot be combined with --fast-dev-run or --validate-only", name);
  if (curve && config.lr_curve.empty() && !folder.empty()) config.lr_curve = folder / "lr_curve.svg";
  leave_nothing_behind(config);
  config.metrics.clear();
  config.profile = Profile::none;
  config.sanity_val = 0;
}

}  // namespace detail

namespace {

void check_image_sizes(const TrainerConfig& config) {
  const std::vector<SizeFrom>& sizes = config.image_sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    ATH_CHECK(
        i == 0 ? sizes[i].epoch == 0 : sizes[i].epoch > sizes[i - 1].epoch,
        "--image-size: sizes must be in the order of their epochs, the first from epoch 0 on, but got {}",
        text(sizes));
  ATH_CHECK(sizes.empty() || sizes.back().size == config.size_of_images(),
            "--image-size: the last of {} must be the size of the run, but that is {}", text(sizes),
            text(config.size_of_images()));
}

void check_device(const TrainerConfig& config) {
  const auto needs_gpu = [&](bool asked, const char* flag, const char* instead) {
    ATH_CHECK(!asked || config.device.is_cuda(), "{}: needs a GPU, but the device is {}; use {}", flag,
              config.device.str(), instead);
  };
  needs_gpu(config.precision == Precision::tf32, "--precision tf32", "f32 or bf16");
  ATH_CHECK(
      config.precision != Precision::bf16 || config.device.is_cpu() || device_info(config.device).sm() >= 80,
      "--precision bf16: the GPU must be of compute capability 8.0 or newer, but {} is not; use f32",
      device_info(config.device).name);
  needs_gpu(config.graph == GraphMode::on, "--graph on", "auto or off");
  needs_gpu(config.resize_on == ImageWork::gpu, "--resize-on gpu", "auto or cpu");
  needs_gpu(config.decode == ImageWork::gpu, "--decode gpu", "auto or cpu");
  ATH_CHECK(config.decode != ImageWork::gpu || config.resize_on != ImageWork::cpu,
            "--decode gpu: decodes for resizing on the GPU, but got --resize-on cpu; use --resize-on auto");
  const bool bicubic = config.interpolation == Resampling::bicubic;
  for (const auto& [on_gpu, flag] : {std::pair(config.resize_on, "--resize-on"), {config.decode, "--decode"}})
    ATH_CHECK(!bicubic || on_gpu != ImageWork::gpu,
              "{0} gpu: bicubic images are resized on the CPU, but got --interpolation bicubic; use {0} auto",
              flag);
  ATH_CHECK(config.strategy != Strategy::single || config.devices <= 1,
            "--strategy single: needs exactly one device, but got --devices {}; use ddp or zero1",
            config.devices);
}

void check_data(const TrainerConfig& config) {
  ATH_CHECK(
      !config.sample_weights || !config.augment.mixes(),
      "--sample-weights: cannot be combined with mixup and cutmix, which mix images of different weights");
  if (config.sampler == Sampler::none) return;
  ATH_CHECK(config.order == Order::random,
            "--sampler: draws from the whole set; cannot be combined with --order pages");
  ATH_CHECK(config.overfit_batches == 0,
            "--sampler: draws other samples in each epoch; cannot be combined with --overfit-batches");
}

void check_beginning(const TrainerConfig& config) {
  const std::string& resume = config.resume;
  ATH_CHECK(resume.empty() || resume == "auto" || std::filesystem::exists(resume),
            "--resume: must be auto or a checkpoint file, but there is no {}", resume);
  ATH_CHECK(
      !std::filesystem::is_directory(resume),
      "--resume: must be auto or a checkpoint file, but {} is a folder; of a run's folder, use --run-dir "
      "with --resume auto",
      resume);
  ATH_CHECK(resume.empty() || !config.fast_dev_run,
            "--fast-dev-run: cannot be combined with --resume, because it runs a trial from the beginning");
  if (!config.pretrained.empty()) (void)find_weights(config.pretrained, config.model, "--pretrained");
  ATH_CHECK(!config.reset_head || !config.pretrained.empty(),
            "--reset-head: needs --pretrained, whose last layer it discards");
}

void check_checkpoints(const TrainerConfig& config) {
  const bool saves = !config.checkpoint_dir.empty() || !config.run_root.empty();
  ATH_CHECK(config.checkpoint_every >= 0 && config.checkpoint_every_s > 0,
            "--checkpoint-every: must be above 0, but got {} steps, {} s", config.checkpoint_every,
            config.checkpoint_every_s);
  ATH_CHECK((config.checkpoint_every == 0 && std::isinf(config.checkpoint_every_s)) || saves,
            "--checkpoint-every: needs --checkpoint-dir or --run-dir to save checkpoints in");
  ATH_CHECK(
      config.resume != "auto" || saves,
      "--resume auto: needs --checkpoint-dir or --run-dir to find checkpoints in; or name a checkpoint file");
  ATH_CHECK(config.save_top_k == 0 || config.judged_by(),
            "--save-top-k: needs --monitor METRIC or --early-stop to rank checkpoints");
  ATH_CHECK(config.save_top_k == 0 || saves,
            "--save-top-k: needs --checkpoint-dir or --run-dir to save checkpoints in");
}

void check_reports(const TrainerConfig& config) {
  for (const std::optional<EarlyStop>& watched : {config.early_stop, config.monitor}) {
    if (!watched) continue;
    ATH_CHECK(!watched->metric.starts_with("val_") || config.limit_val_batches.count != 0,
              "{}: {} needs validation, but --limit-val-batches is 0; monitor train_loss instead",
              watched->flag(), watched->metric);
    check(*watched);
  }
  const bool has_folder = !config.run_dir.empty() || !config.run_root.empty() || config.fast_dev_run;
  ATH_CHECK(
      has_folder || !(config.log_csv || config.log_tensorboard),
      "--logger: csv and tensorboard write into the run's folder, but there is none; add --run-dir DIR");
}

}  // namespace

void check(const TrainerConfig& config) {
  for (const detail::SettingGroup& group : detail::settings_table()) {
    for (const detail::SettingRow& row : group.rows)
      if (row.value.check) row.value.check(config, row.name());
  }
  for (const Freeze& one : config.freeze)
    ATH_CHECK(one.epochs > 0, "--freeze: '{}' must be frozen for at least 1 epoch, but got {}", one.prefix,
              one.epochs);
  if (config.loss_scaling) check(*config.loss_scaling);
  check_image_sizes(config);
  ATH_CHECK(
      config.repeated_aug == 1 || config.order == Order::random,
      "--repeated-aug: cannot be combined with --order pages, because the copies of an image are its page");
  ATH_CHECK(config.repeated_aug == 1 || config.sampler == Sampler::none,
            "--repeated-aug: cannot be combined with --sampler, which draws images more often by itself");
  check_device(config);
  check_data(config);
  check_beginning(config);
  check_checkpoints(config);
  check_reports(config);
}

// Unused settings in a recipe file are not an error: each file lists everything a run can have.
void check_recipe_is_used(const TrainerConfig& config, bool own_optimizers, bool own_schedules) {
  const auto check_unused = [&](const std::string& why, std::initializer_list<const char*> names) {
    for (const FlagValue& flag : config.flags) {
      const bool is_one = std::find(names.begin(), names.end(), flag.name) != names.end();
      ATH_CHECK(!is_one || flag.from != "flag", "{}: must be left out: {}", flag.name, why);
    }
  };
  const std::string has = config.program + " has ";
  if (own_optimizers || config.optimizer) {
    check_unused(has + "its own optimizers",
                 {"--optimizer", "--momentum", "--nesterov", "--betas", "--weight-decay", "--decay"});
  } else if (const OptimizerEntry& entry = entry_of(config.optimizer_kind); !entry.betas) {
    check_unused(fmt::format("{} has none; it has --momentum", entry.name), {"--betas"});
  } else if (!entry.momentum) {
    check_unused(fmt::format("{} has none; it has --betas", entry.name), {"--momentum", "--nesterov"});
  }
  if (own_schedules || config.schedule)
    check_unused(has + "its own learning rates", {"--schedule", "--warmup", "--min-lr"});
  else if (config.schedule_options.kind == ScheduleKind::constant)
    check_unused("the learning rate is constant; choose another --schedule", {"--min-lr"});
  if (own_schedules)  // config.schedule gets the scaled rate
    check_unused(has + "its own learning rates", {"--lr", "--scale-lr"});
}

}  // namespace athanor
