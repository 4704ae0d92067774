#include "trainer/config.h"

#include <algorithm>
#include <cmath>

#include "optim/step.h"
#include "tensor/error.h"
#include "tensor/nearest.h"
#include "tensor/stream.h"

namespace athanor {

Goal EarlyStop::goal_or_default() const {
  if (goal) return *goal;
  if (metric.ends_with("accuracy")) return Goal::maximum;
  ATH_CHECK(metric.ends_with("loss") || metric.ends_with("error"),
            "{0}: must say whether a lower or a higher {1} is better: {1}{2}:min or {1}{2}:max", flag(),
            metric, patience == kNever ? "" : fmt::format(":{}", patience));
  return Goal::minimum;
}

TrainerConfig in_run_dir(TrainerConfig config) {
  if (config.run_dir.empty()) return config;
  if (config.metrics.empty() && config.log_json) config.metrics = config.run_dir / "metrics.jsonl";
  if (config.checkpoint_dir.empty()) config.checkpoint_dir = config.run_dir / "checkpoints";
  return config;
}

void check(const EarlyStop& options) {
  const std::vector<std::string> metrics{"val_loss", "val_accuracy", "train_loss"};
  const bool known = std::find(metrics.begin(), metrics.end(), options.metric) != metrics.end();
  const std::string meant = known ? "" : did_you_mean(options.metric, metrics);
  const bool may_be_logged = options.metric.starts_with("val_") || options.metric.starts_with("train_");
  ATH_CHECK(meant.empty() && (known || may_be_logged),
            "{}: the metric must be one of {}, or one that the program logs, but got '{}'{}", options.flag(),
            fmt::join(metrics, " "), options.metric, meant);
  (void)options.goal_or_default();
  ATH_CHECK(options.patience >= 1, "--early-stop: patience must be at least 1, but got {}", options.patience);
}

static void check_reports(const TrainerConfig& config) {
  for (const std::optional<EarlyStop>& watched : {config.early_stop, config.monitor}) {
    if (!watched) continue;
    ATH_CHECK(!watched->metric.starts_with("val_") || config.limit_val_batches.count != 0,
              "{}: {} needs validation, but --limit-val-batches is 0; monitor train_loss instead",
              watched->flag(), watched->metric);
    check(*watched);
  }
  ATH_CHECK(config.log_every >= 1, "trainer: log_every must be at least 1, but got {}", config.log_every);
  const bool has_folder = !config.run_dir.empty() || !config.run_root.empty() || config.fast_dev_run;
  ATH_CHECK(
      has_folder || !(config.log_csv || config.log_tensorboard),
      "--logger: csv and tensorboard write into the run's folder, but there is none; add --run-dir DIR");
}

static void check_device(const TrainerConfig& config) {
  ATH_CHECK(config.precision != Precision::tf32 || config.device.is_cuda(),
            "--precision tf32: needs a GPU, but the device is {}; use f32 or bf16", config.device.str());
  ATH_CHECK(
      config.precision != Precision::bf16 || config.device.is_cpu() || device_info(config.device).sm() >= 80,
      "--precision bf16: the GPU must be of compute capability 8.0 or newer, but {} is not; use f32",
      device_info(config.device).name);
  ATH_CHECK(config.graph != GraphMode::on || config.device.is_cuda(),
            "--graph on: needs a GPU, but the device is {}; use auto or off", config.device.str());
  ATH_CHECK(config.resize != ImageWork::gpu || config.device.is_cuda(),
            "--resize gpu: needs a GPU, but the device is {}; use auto or cpu", config.device.str());
  ATH_CHECK(config.decode != ImageWork::gpu || config.device.is_cuda(),
            "--decode gpu: needs a GPU, but the device is {}; use auto or cpu", config.device.str());
  ATH_CHECK(config.decode != ImageWork::gpu || config.resize != ImageWork::cpu,
            "--decode gpu: decodes for resizing on the GPU, but got --resize cpu; use --resize auto");
}

void check(const TrainerConfig& config) {
  const auto at_least = [](auto low, const char* name, auto value) {
    ATH_CHECK(value >= low, "trainer: {} must be at least {}, but got {}", name, low, value);
  };
  at_least(1, "epochs", config.epochs);
  at_least(1, "batch_size", config.batch_size);
  at_least(1, "accumulate", config.accumulate);
  at_least(0, "val_batch_size", config.val_batch_size);
  at_least(TrainerConfig::kAllDevices, "devices", config.devices);
  at_least(1, "local_ranks", config.local_ranks);
  at_least(0, "clip_norm", config.clip_norm);
  at_least(0, "clip_value", config.clip_value);
  at_least(0, "skip_outliers", config.skip_outliers);
  at_least(1, "max_overflows_at_floor", config.max_overflows_at_floor);
  at_least(LoaderOptions::kAuto, "workers", config.workers);
  at_least(1, "prefetch", config.prefetch);
  at_least(0, "checkpoint_every", config.checkpoint_every);
  at_least(1, "checkpoint_keep", config.checkpoint_keep);
  at_least(0, "save_top_k", config.save_top_k);
  ATH_CHECK(std::isfinite(config.lr) && config.lr > 0,
            "trainer: the learning rate must be above 0, but got {}", config.lr);
  check_device(config);
  ATH_CHECK(config.strategy != Strategy::single || config.devices <= 1,
            "--strategy single: needs exactly one device, but got --devices {}; use ddp or zero1",
            config.devices);
  ATH_CHECK(config.label_smoothing >= 0 && config.label_smoothing < 1,
            "trainer: label_smoothing must be in [0, 1), but got {}", config.label_smoothing);
  ATH_CHECK(config.ema_decay >= 0 && config.ema_decay < 1, "trainer: ema_decay must be in [0, 1), but got {}",
            config.ema_decay);
  if (config.loss_scaling) check(*config.loss_scaling);
  const bool saves = !config.checkpoint_dir.empty() || !config.run_root.empty();
  ATH_CHECK(config.checkpoint_every_s > 0, "trainer: checkpoint_every_s must be above 0, but got {}",
            config.checkpoint_every_s);
  ATH_CHECK((config.checkpoint_every == 0 && std::isinf(config.checkpoint_every_s)) || saves,
            "--checkpoint-every: needs --checkpoint-dir or --run-dir to save checkpoints in");
  ATH_CHECK(
      config.resume != "auto" || saves,
      "--resume auto: needs --checkpoint-dir or --run-dir to find checkpoints in; or name a checkpoint file");
  ATH_CHECK(config.resume.empty() || config.resume == "auto" || std::filesystem::exists(config.resume),
            "--resume: must be auto or a checkpoint file, but there is no {}", config.resume);
  ATH_CHECK(
      !std::filesystem::is_directory(config.resume),
      "--resume: must be auto or a checkpoint file, but {} is a folder; of a run's folder, use --run-dir "
      "with --resume auto",
      config.resume);
  ATH_CHECK(config.resume.empty() || !config.fast_dev_run,
            "--fast-dev-run: cannot be combined with --resume, because it runs a trial from the beginning");
  ATH_CHECK(config.pretrained.empty() || std::filesystem::exists(config.pretrained),
            "--pretrained: must be a file with weights, but there is no {}", config.pretrained.string());
  ATH_CHECK(config.save_top_k == 0 || config.judged_by(),
            "--save-top-k: needs --monitor METRIC or --early-stop to rank checkpoints");
  ATH_CHECK(config.save_top_k == 0 || saves,
            "--save-top-k: needs --checkpoint-dir or --run-dir to save checkpoints in");
  ATH_CHECK(!config.reset_head || !config.pretrained.empty(),
            "--reset-head: needs --pretrained, whose last layer it discards");
  for (const Freeze& one : config.freeze)
    ATH_CHECK(one.epochs > 0, "--freeze: '{}' must be frozen for at least 1 epoch, but got {}", one.prefix,
              one.epochs);
  check_reports(config);
}

}  // namespace athanor
