#include "trainer/checkpoints/run_checkpoints.h"

#include <algorithm>
#include <cmath>

#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "tensor/error.h"
#include "trainer/gather_metrics.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

/// One run per folder: otherwise the newest checkpoint might be another run's.
void check_folder(const CheckpointFolder& folder, const std::string& resume) {
  const std::vector<std::int64_t> steps = folder.steps();
  if (steps.empty() || resume == "auto") return;
  ATH_CHECK(!resume.empty(),
            "--checkpoint-dir: {} must be empty when a new run starts, but holds checkpoints up to step {}; "
            "add --resume auto to continue from them, or choose another folder",
            folder.path().string(), steps.back());
  std::error_code ignored;
  const fs::path newest = folder.path_of(steps.back());
  ATH_CHECK(fs::equivalent(newest, resume, ignored),
            "--resume: {} must be the newest checkpoint in --checkpoint-dir, but the newest is {}; choose "
            "another folder to save in, or delete the newer checkpoints",
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

// Rank 0 chooses: all ranks must resume the same valid file.
void RunCheckpoints::choose(NewestCheckpoint& found) {
  strategy_.run_on_rank0([&] {
    if (!config_.checkpoint_dir.empty()) folder_.emplace(config_.checkpoint_dir, config_.checkpoint_keep);
    if (config_.fast_dev_run) return;  // a trial run leaves nothing behind
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
  found.state = load_checkpoint(chosen, Verify::header);  // rank 0 has read all of it
}

std::optional<RunPosition> RunCheckpoints::open(const SettingsOver& settings, std::int64_t total_steps) {
  if (config_.checkpoint_dir.empty() && config_.resume.empty()) return std::nullopt;
  NewestCheckpoint found;
  choose(found);
  if (config_.resume.empty()) return std::nullopt;
  if (found.path.empty()) {
    notes_.push_back(fmt::format("--resume auto: no {}checkpoint in {}; starting fresh",
                                 found.skipped.empty() ? "" : "valid ", config_.checkpoint_dir.string()));
    return std::nullopt;
  }
  // Reports known errors before anything else begins.
  RunPosition position;
  bool follows = false;
  std::int64_t schedule_steps = total_steps;
  try {
    const StateDict saved = found.state.under("settings.");
    schedule_steps = std::min(saved_schedule_steps(saved), total_steps);
    follows = check_settings(saved, settings(schedule_steps), true);
    position = position_from(found.state.under("run."));
  } catch (const ArgumentError& error) {
    detail::fail<>("--resume: {}: {}", found.path.string(), error.what());
  }
  notes_.push_back(fmt::format("resumed from {}: {} of {} steps done", found.path.string(),
                               position.attempted, total_steps));
  if (schedule_steps < total_steps)
    notes_.push_back(
        fmt::format("the run was planned for {} steps: the learning rate follows that schedule, then keeps "
                    "its last value",
                    schedule_steps));
  if (follows && position.ended) {
    notes_.push_back(fmt::format("the run had stopped: {}; it continues, since it has other flags now",
                                 position.ended->why));
    position.ended.reset();
  }
  found_ = std::move(found);
  return position;
}

void RunCheckpoints::resume(const std::vector<StatePart>& parts) {
  // Callbacks on rank 0 only; this rank's own are found below.
  if (!strategy_.is_rank0()) (void)found_->state.under("callbacks.");
  try {
    load_parts(parts, found_->state);
  } catch (const ArgumentError& error) {
    detail::fail<>("--resume: {}: {}", found_->path.string(), error.what());
  }
  found_->state = {};  // releases the file
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

// The best checkpoints.
// ----------------------------------------------------------------------------------------------------

StatePart RunCheckpoints::best_part() {
  const auto save = [this] {
    StateDict state;
    if (best_.empty()) return state;
    std::vector<std::int64_t> steps;
    std::vector<double> values;
    for (const Best& one : best_) {
      steps.push_back(one.step);
      values.push_back(one.value);
    }
    const auto count = std::ssize(best_);
    state.set("steps", Tensor::from(steps, {count}));
    state.set("values", Tensor::from(values, {count}));
    return state;
  };
  const auto load = [this](const StateDict& state) {
    std::vector<Best> best;
    if (!state.empty()) {
      const Tensor steps = state.tensor("steps"), values = state.tensor("values", steps.shape());
      state.require_all_used("best");
      ATH_CHECK(steps.dtype() == DType::i64 && values.dtype() == DType::f64 && steps.rank() == 1,
                "best: steps must be i64 [K] and values f64 [K], but they are {} {} and {}", steps.dtype(),
                steps.shape(), values.dtype());
      for (std::int64_t i = 0; i < steps.numel(); ++i)
        best.push_back({steps.data<std::int64_t>()[i], values.data<double>()[i]});
    }
    best_ = std::move(best);
  };
  return {"best.", save, load};
}

// Of two equal ones, keeps the older.
void RunCheckpoints::rank_among_best(std::int64_t step) {
  const std::optional<double> value = std::exchange(measured_, std::nullopt);
  if (config_.save_top_k == 0 || !value || !std::isfinite(*value)) return;
  const bool less = config_.judged_by()->goal_or_default() == Goal::minimum;
  std::erase_if(best_, [&](const Best& one) { return one.step == step; });
  const auto worse = [&](const Best& one) { return less ? *value < one.value : *value > one.value; };
  best_.insert(std::find_if(best_.begin(), best_.end(), worse), {step, *value});
  if (std::ssize(best_) > config_.save_top_k) best_.resize(static_cast<std::size_t>(config_.save_top_k));
}

std::string RunCheckpoints::describe_best() const {
  std::string all;
  for (const Best& one : best_)
    all += fmt::format("{}{:.4g} after {} steps", all.empty() ? "" : ", ", one.value, one.step);
  return all.empty() ? "" : fmt::format("{}: {}", config_.judged_by()->metric, all);
}

// Saving ---------------------------------------------------------------------------------------------------

bool RunCheckpoints::has_diverged(const RunPosition& position) const {
  return step_.read().overflows_at_floor > 0 || (position.validated && !position.validation.finite);
}

bool RunCheckpoints::save(RunPosition& position, const Limits& limits, const RunClock& clock,
                          PhaseTimes& times, const std::vector<StatePart>& parts) {
  const std::pair here{position.epoch, position.attempted};
  if (config_.checkpoint_dir.empty() || config_.fast_dev_run || saved_ == here || has_diverged(position))
    return false;
  const auto timed = times.scope(&Times::saving);
  position.elapsed_s = clock.seconds();
  position.ended.reset();
  // Limits and signals are evaluated again after a resume; decisions of callbacks are not.
  if (limits.ended().reason == StoppedBy::early_stop) position.ended = limits.ended();
  (void)step_.read();  // waits: afterwards every step's result is known
  (void)step_.known();
  sums_of_all_ = gather(metrics_, strategy_);
  rank_among_best(position.attempted);
  strategy_.write_state(
      [&] { return save_parts(parts); },
      [&](const StateDict& state, const dist::ReadTensor& read) { write(position.attempted, state, read); });
  note_written();
  under_way_ = position.attempted;
  if (!config_.async_checkpoints) note_written();
  saved_ = here;
  return true;
}

// On rank 0.
void RunCheckpoints::write(std::int64_t step, const StateDict& state, const dist::ReadTensor& read) {
  std::vector<std::int64_t> best;
  for (const Best& one : best_) best.push_back(one.step);
  if (!config_.async_checkpoints) {
    try {
      return folder_->save(step, state, read, best);
    } catch (const IoError&) {
      if (strategy_.world_size() > 1) throw;  // `read` needs the other ranks
      folder_->remake();                      // another program may be removing it: once more
      return folder_->save(step, state, read, best);
    }
  }
  background_.start(state, read, [this, step, best](const StateDict& copy) {
    folder_->save(step, copy, dist::read_whole, best);
  });
}

void RunCheckpoints::note_written() {
  if (!under_way_) return;
  if (folder_) newest_ = folder_->path_of(*under_way_);
  under_way_.reset();
  written_ = true;
}

void RunCheckpoints::wait() {
  if (!under_way_) return;
  strategy_.run_on_rank0([&] { background_.wait(); });
  note_written();
}

}  // namespace athanor
