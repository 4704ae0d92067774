#include "trainer/checkpoints/final_weights.h"

#include "tensor/atomic_file.h"
#include "tensor/error.h"
#include "trainer/checkpoints/run_folder.h"

namespace athanor {
namespace {

std::string describe_weights(const TrainerConfig& config) {
  const std::string average = config.ema_decay > 0 ? "running average" : "";
  if (!config.judged_by()) return average.empty() ? "last step" : average;
  return fmt::format("best {}{}", config.judged_by()->metric, average.empty() ? "" : ", " + average);
}

}  // namespace

void FinalWeights::write(const std::filesystem::path& path, const Weights& weights, const ModelInfo& info) {
  strategy_.complete_weights();
  strategy_.write_state(weights, [&](const StateDict& state, const dist::ReadTensor& read) {
    std::error_code ignored;  // writing the file reports any problem
    std::filesystem::create_directory(path.parent_path(), ignored);
    AtomicFile::remove_unfinished(path.parent_path());
    save_model(path, info, state, read);
  });
}

void FinalWeights::save_last(const Weights& weights, ModelInfo info) {
  info.weights = "last step";
  write(last_model_path(config_.run_dir, config_.phase), weights, info);
  has_last_ = true;
  last_hash_ = info.weights_hash;
}

void FinalWeights::save(const Weights& weights, ModelInfo info, FitReport& report) {
  report.weights = info.weights = describe_weights(config_);
  report.model = model_path(config_.run_dir, config_.phase);
  write(report.model, weights, info);
  const std::filesystem::path last = last_model_path(config_.run_dir, config_.phase);
  if (has_last_ && last_hash_ != info.weights_hash) {
    report.last_model = last;
  } else if (strategy_.is_rank0()) {  // a copy of the same weights, or of an earlier training
    std::error_code ignored;
    std::filesystem::remove(last, ignored);
  }
}

}  // namespace athanor
