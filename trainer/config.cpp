#include "trainer/config.h"

#include <algorithm>
#include <initializer_list>

#include "tensor/base/error.h"
#include "tensor/base/nearest.h"

namespace athanor {

Goal EarlyStop::goal_or_default() const {
  if (goal) return *goal;
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return metric.ends_with(name); });
  };
  if (is({"accuracy", "_mAP", "_f1_micro", "_f1_macro", "_r2"})) return Goal::maximum;
  ATH_CHECK(is({"loss", "error", "_mae", "_rmse"}),
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

}  // namespace athanor
