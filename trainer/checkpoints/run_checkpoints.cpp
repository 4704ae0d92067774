// Explained in docs/kill_nine.md.
#include "trainer/checkpoints/run_checkpoints.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "autograd/grad_mode.h"
#include "tensor/base/error.h"
#include "trainer/gather_metrics.h"
#include "trainer/run/run_info.h"

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

/// A host copy, with whole tensors.
StateDict copied(const StateDict& state, const dist::ReadTensor& read) {
  StateDict copy;
  for (const StateDict::Entry& entry : state) {
    const auto* const tensor = std::get_if<Tensor>(&entry.value);
    const auto* const part = std::get_if<ShardedTensor>(&entry.value);
    if (!tensor && !part) {
      copy.set(entry.name, entry.value);
      continue;
    }
    const Tensor to = tensor ? Tensor::empty(tensor->shape(), {tensor->dtype()})
                             : Tensor::empty(part->shape, {part->dtype});
    std::byte* at = to.raw_data();
    read(entry, [&](std::span<const std::byte> bytes) {
      std::memcpy(at, bytes.data(), bytes.size());
      at += bytes.size();
    });
    copy.set(entry.name, to);
  }
  return copy;
}

}  // namespace

RunCheckpoints::RunCheckpoints(Run& run) : run_(run) {}

// Rank 0 chooses: all ranks must resume the same valid file.
void RunCheckpoints::choose(NewestCheckpoint& found) {
  run_.strategy.run_on_rank0([&] {
    if (!run_.config.checkpoint_dir.empty())
      folder_.emplace(run_.config.checkpoint_dir, run_.config.checkpoint_keep);
    if (run_.config.fast_dev_run) return;  // a trial run leaves nothing behind
    if (folder_) check_folder(*folder_, run_.config.resume);
    if (run_.config.resume == "auto") {
      found = newest_valid(run_.config.checkpoint_dir);
      for (const std::string& why : found.skipped) notes_.push_back("skipped: " + why);
    } else if (!run_.config.resume.empty()) {
      found.path = run_.config.resume;
      found.state = load_checkpoint(found.path);
    }
  });
  if (run_.config.resume.empty()) return;
  const fs::path chosen = run_.strategy.broadcast_from_rank0(found.path.string());
  if (run_.strategy.is_rank0() || chosen.empty()) return;
  found.path = chosen;
  found.state = load_checkpoint(chosen, Verify::header);  // rank 0 has read all of it
}

bool RunCheckpoints::open() {
  (void)state_parts();  // reports clashing names of callbacks now, not at the first save
  const TrainerConfig& config = run_.config;
  if (config.checkpoint_dir.empty() && config.resume.empty()) return false;
  NewestCheckpoint found;
  choose(found);
  if (config.resume.empty()) return false;
  if (found.path.empty()) {
    notes_.push_back(fmt::format("--resume auto: no {}checkpoint in {}; starting fresh",
                                 found.skipped.empty() ? "" : "valid ", config.checkpoint_dir.string()));
    return false;
  }
  // Reports known errors before anything else begins.
  RunPosition position;
  bool follows = false;
  const std::int64_t total_steps = run_.total_steps();
  std::int64_t schedule_steps = total_steps;
  try {
    const StateDict saved = found.state.under("settings.");
    schedule_steps = std::min(saved_schedule_steps(saved), total_steps);
    follows = check_settings(saved, run_.plan(schedule_steps), true);
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
  run_.position = position;
  return true;
}

// Nothing is measured, and a checkpoint's bytes do not depend on the number of ranks.
void RunCheckpoints::describe() {
  if (!folder_) return;
  ModelInfo info = describe_model(run_, 0);
  info.weights = "checkpoint";
  info.batch_size = 0;
  info.ranks = 1;
  folder_->describe(description(info));
}

void RunCheckpoints::resume() {
  RunPosition& position = run_.position;
  const bool ended = position.ended.has_value();
  // Callbacks on rank 0 only; this rank's own are found below.
  if (!run_.strategy.is_rank0()) (void)found_->state.under("callbacks.");
  try {
    load_parts(state_parts(), found_->state);
  } catch (const ArgumentError& error) {
    detail::fail<>("--resume: {}: {}", found_->path.string(), error.what());
  }
  found_->state = {};  // releases the file
  if (!ended) position.ended.reset();
  run_.scale_learning_rates(1);
  run_.strategy.complete_weights();
  run_.clock.add(position.elapsed_s);
  run_.limits.saved();
  if (position.ended) run_.limits.stop(*position.ended);
  run_.limits.after_step(position.attempted);
}

// In an order in which the likeliest mismatches come first.
std::vector<StatePart> RunCheckpoints::state_parts() {
  std::vector<StatePart> all;
  for (std::vector<StatePart>& parts :
       std::to_array({run_.state_parts(), run_.observers.state_parts(),
                      std::vector{metrics_part(), best_part()}, run_.networks.state_parts()}))
    all.insert(all.end(), parts.begin(), parts.end());
  return all;
}

// With a row for each rank, so that equally many ranks resume with the same bits.
StatePart RunCheckpoints::metrics_part() {
  return {"metrics.", [this] { return run_.metrics.state_dict(sums_of_all_, run_.strategy.world_size()); },
          [this](const StateDict& state) {
            run_.metrics.load_state_dict(state, run_.strategy.rank(), run_.strategy.world_size());
          }};
}

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
void RunCheckpoints::rank_among_best() {
  const std::optional<double> value = std::exchange(measured_, std::nullopt);
  if (run_.config.save_top_k == 0 || !value || !std::isfinite(*value)) return;
  const std::int64_t step = run_.position.attempted;
  const bool less = run_.config.judged_by()->goal_or_default() == Goal::minimum;
  std::erase_if(best_, [&](const Best& one) { return one.step == step; });
  const auto worse = [&](const Best& one) { return less ? *value < one.value : *value > one.value; };
  best_.insert(std::find_if(best_.begin(), best_.end(), worse), {step, *value});
  if (std::ssize(best_) > run_.config.save_top_k)
    best_.resize(static_cast<std::size_t>(run_.config.save_top_k));
}

std::string RunCheckpoints::describe_best() const {
  std::string all;
  for (const Best& one : best_)
    all += fmt::format("{}{:.4g} after {} steps", all.empty() ? "" : ", ", one.value, one.step);
  return all.empty() ? "" : fmt::format("{}: {}", run_.config.judged_by()->metric, all);
}

// Saving ---------------------------------------------------------------------------------------------------

bool RunCheckpoints::due() const {
  return run_.config.checkpoint_every > 0 && run_.position.attempted % run_.config.checkpoint_every == 0;
}

void RunCheckpoints::measured(double value) {
  measured_ = value;
  if (saved_.second == run_.position.attempted) rank_among_best();
}

void RunCheckpoints::save() {
  run_.strategy.complete_weights();
  keep_folders();
  RunPosition& position = run_.position;
  const std::pair here{position.epoch, position.attempted};
  if (run_.config.checkpoint_dir.empty() || run_.config.fast_dev_run || saved_ == here) return;
  const bool diverged =
      run_.step.read().overflows_at_floor > 0 || (position.validated && !position.validation.finite);
  if (diverged) return;
  bool written = false;
  {
    const auto timed = run_.times.scope(&Times::saving);
    position.elapsed_s = run_.clock.seconds();
    position.ended.reset();
    // Limits and signals are evaluated again after a resume; decisions of callbacks are not.
    if (run_.limits.ended().reason == StoppedBy::early_stop) position.ended = run_.limits.ended();
    (void)run_.step.read();  // waits: afterwards every step's result is known
    (void)run_.step.known();
    sums_of_all_ = gather(run_.metrics, run_.strategy);
    rank_among_best();
    const std::vector<StatePart> parts = state_parts();
    run_.strategy.write_state(
        [&] { return save_parts(parts); },
        [&](const StateDict& state, const dist::ReadTensor& read) { write(state, read); });
    written = finish_save();  // the previous one
    under_way_ = position.attempted;
    if (!run_.config.async_checkpoints) written = finish_save();
    saved_ = here;
  }
  run_.limits.saved();
  if (written) run_.observers.notify(&Callback::on_checkpoint, newest_);
}

// On rank 0.
void RunCheckpoints::write(const StateDict& state, const dist::ReadTensor& read) {
  const std::int64_t step = run_.position.attempted;
  std::vector<std::int64_t> best;
  for (const Best& one : best_) best.push_back(one.step);
  if (run_.config.async_checkpoints) {
    if (writing_.valid()) writing_.get();
    copy_ = {};  // its memory serves this one
    copy_ = copied(state, read);
    writing_ = std::async(std::launch::async,
                          [this, step, best] { folder_->save(step, copy_, dist::read_whole, best); });
    return;
  }
  try {
    folder_->save(step, state, read, best);
  } catch (const IoError&) {
    if (run_.strategy.world_size() > 1) throw;  // `read` needs the other ranks
    folder_->remake();                          // another program may be removing it: once more
    folder_->save(step, state, read, best);
  }
}

bool RunCheckpoints::finish_save() {
  if (!under_way_) return false;
  if (folder_) newest_ = folder_->path_of(*under_way_);
  under_way_.reset();
  return true;
}

void RunCheckpoints::wait() {
  if (!under_way_) return;
  run_.strategy.run_on_rank0([&] {
    if (writing_.valid()) writing_.get();
  });
  finish_save();
  run_.observers.notify(&Callback::on_checkpoint, newest_);
}

void RunCheckpoints::keep_folders() {
  std::string note;
  run_.strategy.run_on_rank0([&] {
    const bool run_dir = run_.dir.remake(run_.observers), checkpoints = folder_ && folder_->remake();
    if (run_dir || checkpoints)
      note = fmt::format("{} was removed while the run went on, and was made again",
                         (run_dir ? run_.config.run_dir : run_.config.checkpoint_dir).string());
  });
  run_.observers.note(note);
}

std::string RunCheckpoints::last() const {
  if (!run_.strategy.is_rank0()) return {};  // only rank 0 knows what has been saved since
  const fs::path last = newest_.empty() ? resumed_from() : newest_;
  return last.empty() ? "" : fmt::format("; the last checkpoint is {}", last.string());
}

}  // namespace athanor
