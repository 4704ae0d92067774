#include "trainer/run_checkpoints.h"

#include <algorithm>
#include <cmath>

#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "tensor/error.h"
#include "trainer/gather_metrics.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

/// One folder, one run: else the newest checkpoint in it would be another run's.
void check_folder(const CheckpointFolder& folder, const std::string& resume) {
  const std::vector<std::int64_t> steps = folder.steps();
  if (steps.empty() || resume == "auto") return;
  ATH_CHECK(!resume.empty(),
            "--checkpoint-dir: {} must be empty when a run begins, but holds checkpoints up to step {}: add "
            "--resume auto to go on with them, or name another folder",
            folder.path().string(), steps.back());
  std::error_code ignored;
  const fs::path newest = folder.path_of(steps.back());
  ATH_CHECK(fs::equivalent(newest, resume, ignored),
            "--resume: {} must be the newest checkpoint of --checkpoint-dir, but that is {}: name another "
            "folder to save in, or remove what is newer",
            resume, newest.string());
}

}  // namespace

RunCheckpoints::RunCheckpoints(const TrainerConfig& config, ParallelStrategy& strategy,
                               const StepBuffer& step, MetricSums& metrics)
    : config_(config),
      strategy_(strategy),
      step_(step),
      metrics_(metrics),
      sums_of_all_(metrics.joined({}).size() * static_cast<std::size_t>(strategy.world_size())) {}

// Rank 0 chooses: a file that is whole for one must be the one that all go on from.
void RunCheckpoints::choose(NewestCheckpoint& found) {
  strategy_.run_on_rank0([&] {
    if (!config_.checkpoint_dir.empty()) folder_.emplace(config_.checkpoint_dir, config_.checkpoint_keep);
    if (config_.fast_dev_run) return;  // leaves nothing behind
    if (folder_) check_folder(*folder_, config_.resume);
    if (config_.resume == "auto") {
      found = newest_valid(config_.checkpoint_dir);
      for (const std::string& why : found.skipped) notes_.push_back("skipped: " + why);
    } else if (!config_.resume.empty()) {
      found.path = config_.resume;
      found.state = load_checkpoint(found.path);
    }
  });
  if (config_.resume.empty()) return;
  const fs::path chosen = strategy_.broadcast_from_rank0(found.path.string());
  if (strategy_.is_rank0() || chosen.empty()) return;
  found.path = chosen;
  found.state = load_checkpoint(chosen);
}

std::optional<RunPosition> RunCheckpoints::open(const std::vector<Setting>& settings,
                                                std::int64_t total_steps) {
  if (config_.checkpoint_dir.empty() && config_.resume.empty()) return std::nullopt;
  NewestCheckpoint found;
  choose(found);
  if (config_.resume.empty()) return std::nullopt;
  if (found.path.empty()) {
    notes_.push_back(fmt::format("--resume auto: no checkpoint {}in {}: a fresh start",
                                 found.skipped.empty() ? "" : "that can be read ",
                                 config_.checkpoint_dir.string()));
    return std::nullopt;
  }
  // What is known to be wrong is said before anything else begins.
  RunPosition position;
  try {
    check_settings(found.state.under("settings."), settings);
    position = position_from(found.state.under("run."));
  } catch (const ArgumentError& error) {
    detail::fail<>("--resume: {}: {}", found.path.string(), error.what());
  }
  notes_.push_back(fmt::format("resumed from {}: {} of {} steps done", found.path.string(),
                               position.attempted, total_steps));
  found_ = std::move(found);
  return position;
}

void RunCheckpoints::resume(const std::vector<StatePart>& parts) {
  // Of callbacks that rank 0 alone has; those of this rank are found below.
  if (!strategy_.is_rank0()) (void)found_->state.under("callbacks.");
  try {
    load_parts(parts, found_->state);
  } catch (const ArgumentError& error) {
    detail::fail<>("--resume: {}: {}", found_->path.string(), error.what());
  }
  found_->state = {};  // lets the file go
}

StatePart RunCheckpoints::metrics_part() {
  static constexpr auto kOfClasses = static_cast<std::ptrdiff_t>(MetricSums::kOfClasses);
  const auto save = [this] {
    StateDict state;
    const auto ranks = static_cast<std::int64_t>(strategy_.world_size());
    const auto size = std::ssize(sums_of_all_) / ranks;
    const Tensor all = Tensor::from(sums_of_all_, {ranks, size});
    state.set("train_totals", contiguous(narrow(all, 1, 0, kOfClasses)));
    if (size == kOfClasses) return state;
    state.set("logged", metrics_.rows());
    state.set("logged_totals", contiguous(narrow(all, 1, kOfClasses, size - kOfClasses)));
    return state;
  };
  const auto load = [this](const StateDict& state) {
    std::vector<Tensor> parts{state.tensor("train_totals")};
    std::string rows;
    if (state.contains("logged")) {
      rows = state.text("logged");
      parts.push_back(state.tensor("logged_totals"));
    }
    state.require_all_used("metrics");
    const std::int64_t ranks = parts[0].rank() == 2 ? parts[0].shape()[0] : 0;
    for (const Tensor& part : parts)
      ATH_CHECK(
          part.dtype() == DType::f64 && part.rank() == 2 && part.shape()[0] == ranks && part.numel() > 0,
          "metrics: totals must be f64 with a row for each of {} ranks, but are {} {}", ranks,
          name_of(part.dtype()), part.shape());
    const std::vector<double> of_ranks = cat(parts, 1).to_vector();
    const auto size = std::ssize(of_ranks) / ranks;
    metrics_.write(rows, std::vector<double>(static_cast<std::size_t>(size)));
    if (ranks == strategy_.world_size()) {
      metrics_.write(rows, {of_ranks.begin() + size * strategy_.rank(),
                            of_ranks.begin() + size * (strategy_.rank() + 1)});
    } else if (strategy_.is_rank0()) {
      metrics_.write(rows, metrics_.joined(of_ranks));
    }
  };
  return {"metrics.", save, load};
}

bool RunCheckpoints::has_diverged(const RunPosition& position) const {
  return step_.read().stuck_steps > 0 || (position.validated && !position.validation.finite);
}

bool RunCheckpoints::save(RunPosition& position, const Limits& limits, const RunClock& clock,
                          PhaseTimes& times, const std::vector<StatePart>& parts) {
  const std::pair here{position.epoch, position.attempted};
  if (config_.checkpoint_dir.empty() || config_.fast_dev_run || saved_ == here || has_diverged(position))
    return false;
  const auto timed = times.scope(&Times::saving);
  position.elapsed_s = clock.seconds();
  position.ended.reset();
  // Limits and signals are looked at anew; what a callback has decided is not.
  if (limits.ended().reason == StoppedBy::early_stop) position.ended = limits.ended();
  (void)step_.read();  // waits: after it, every step's result is here
  (void)step_.known();
  sums_of_all_ = gather(metrics_, strategy_);
  strategy_.write_state([&] { return save_parts(parts); },
                        [&](const StateDict& state, const dist::ReadTensor& read) {
                          newest_ = folder_->save(position.attempted, state, read);
                        });
  saved_ = here;
  return true;
}

}  // namespace athanor
