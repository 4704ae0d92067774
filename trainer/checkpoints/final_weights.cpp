#include "trainer/checkpoints/final_weights.h"

#include "tensor/base/error.h"
#include "tensor/io/atomic_file.h"
#include "trainer/checkpoints/run_folder.h"
#include "trainer/run/run_info.h"

namespace athanor {
namespace {

std::string describe_weights(const TrainerConfig& config) {
  const std::string average = config.ema_decay > 0 ? "running average" : "";
  if (!config.judged_by()) return average.empty() ? "last step" : average;
  return fmt::format("best {}{}", config.judged_by()->metric, average.empty() ? "" : ", " + average);
}

}  // namespace

void FinalWeights::write(const std::filesystem::path& path, const std::string& which, std::uint64_t hash,
                         const Metrics& measured) {
  ModelInfo info = describe_model(run_, hash, measured);
  info.weights = which;
  run_.strategy.complete_weights();
  run_.strategy.write_state(run_.networks.weights_part().save,
                            [&](const StateDict& state, const dist::ReadTensor& read) {
                              std::error_code ignored;  // writing the file reports any problem
                              std::filesystem::create_directory(path.parent_path(), ignored);
                              AtomicFile::remove_unfinished(path.parent_path());
                              save_model(path, info, state, read);
                            });
}

void FinalWeights::save_last(const Metrics& measured) {
  last_hash_ = run_.networks.weights_hash();
  write(last_model_path(run_.config.run_dir, run_.config.phase), "last step", last_hash_, measured);
  has_last_ = true;
}

void FinalWeights::save(const Metrics& measured, FitReport& report) {
  report.weights = describe_weights(run_.config);
  report.model = model_path(run_.config.run_dir, run_.config.phase);
  write(report.model, report.weights, report.weights_hash, measured);
  const std::filesystem::path last = last_model_path(run_.config.run_dir, run_.config.phase);
  if (has_last_ && last_hash_ != report.weights_hash) {
    report.last_model = last;
  } else if (run_.strategy.is_rank0()) {  // a copy of the same weights, or of an earlier training
    std::error_code ignored;
    std::filesystem::remove(last, ignored);
  }
}

}  // namespace athanor
