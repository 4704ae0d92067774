#include "trainer/config.h"

#include <algorithm>
#include <cmath>

#include "optim/step.h"
#include "tensor/error.h"
#include "tensor/nearest.h"
#include "tensor/stream.h"

namespace athanor {

void check(const EarlyStop& options) {
  const std::vector<std::string> metrics{"val_loss", "val_accuracy", "train_loss"};
  ATH_CHECK(std::find(metrics.begin(), metrics.end(), options.metric) != metrics.end(),
            "--early-stop: the metric must be one of {}, but got '{}'{}", fmt::join(metrics, " "),
            options.metric, did_you_mean(options.metric, metrics));
  ATH_CHECK(options.patience >= 1, "--early-stop: patience must be at least 1, but got {}", options.patience);
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
  if (config.early_stop) check(*config.early_stop);
}

}  // namespace athanor
