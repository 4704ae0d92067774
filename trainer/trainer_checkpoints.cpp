// How a Trainer saves what a run is made of, and goes on with it.

#include <algorithm>
#include <cctype>
#include <cmath>

#include "dist/watch/watchdog.h"
#include "optim/load.h"
#include "tensor/error.h"
#include "trainer/progress.h"
#include "trainer/trainer.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

/// "callbacks.NAME.", checked.
std::string prefix_of(const Callback& callback, const std::vector<StatePart>& parts) {
  const std::string name = callback.state_name();
  const bool plain =
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  ATH_CHECK(plain, "trainer: a callback's name must be of letters, digits and '_', but is '{}'", name);
  std::string prefix = fmt::format("callbacks.{}.", name);
  const bool taken =
      std::any_of(parts.begin(), parts.end(), [&](const StatePart& part) { return part.prefix == prefix; });
  ATH_CHECK(!taken, "trainer: callbacks with state must have names of their own, but two are called '{}'",
            name);
  return prefix;
}

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

void Trainer::open_checkpoints(std::optional<CheckpointFolder>& folder) {
  folder_ = nullptr;
  saves_ = !config_.checkpoint_dir.empty() && !config_.fast_dev_run;
  resume_from_.reset();
  notes_.clear();
  newest_saved_.clear();
  saved_ = -1;
  (void)state_parts();  // callbacks whose names clash are an error now, not at the first save
  if (config_.checkpoint_dir.empty() && config_.resume.empty()) return;
  // Rank 0 chooses: a file that is whole for one must be the one that all go on from.
  NewestCheckpoint found;
  ranks_.first_does([&] {
    if (!config_.checkpoint_dir.empty()) folder.emplace(config_.checkpoint_dir, config_.checkpoint_keep);
    if (config_.fast_dev_run) return;  // leaves nothing behind
    if (folder) {
      folder_ = &*folder;
      check_folder(*folder, config_.resume);
    }
    if (config_.resume == "auto") {
      found = newest_valid(config_.checkpoint_dir);
      for (const std::string& why : found.skipped) notes_.push_back("skipped: " + why);
    } else if (!config_.resume.empty()) {
      found.path = config_.resume;
      found.state = load_checkpoint(found.path);
    }
  });
  if (config_.resume.empty()) return;
  if (const fs::path chosen = ranks_.of_first(found.path.string()); !ranks_.first() && !chosen.empty()) {
    found.path = chosen;
    found.state = load_checkpoint(chosen);
  }
  if (found.path.empty()) {
    notes_.push_back(fmt::format("--resume auto: no checkpoint {}in {}: a fresh start",
                                 found.skipped.empty() ? "" : "that can be read ",
                                 config_.checkpoint_dir.string()));
    return;
  }
  // What is known to be wrong is said before anything else begins.
  try {
    check_settings(found.state.under("settings."), settings());
    at_ = position_from(found.state.under("run."));
  } catch (const ArgumentError& error) {
    detail::fail<>("--resume: {}: {}", found.path.string(), error.what());
  }
  notes_.push_back(fmt::format("resumed from {}: {} of {} steps done", found.path.string(), at_.attempted,
                               describe().total_steps));
  resume_from_ = std::move(found);
}

// As check_limits() will find; an epoch whose steps are done may still have to be reported.
std::string Trainer::nothing_to_do(const FitInfo& info) const {
  if (!resume_from_) return {};
  if (at_.ended) return at_.why_ended;
  if (at_.attempted >= info.total_steps) {
    if (info.total_steps == config_.max_steps)
      return fmt::format("--max-steps {} is reached", config_.max_steps);
    return config_.epochs == 1 ? "its epoch is done"
                               : fmt::format("all of its {} epochs are done", config_.epochs);
  }
  if (at_.elapsed_s < config_.max_time_s) return {};
  return fmt::format("--max-time is used up ({} of {}); with more of it the run goes on",
                     duration(at_.elapsed_s), duration(config_.max_time_s));
}

StateDict Trainer::settings() const {
  return settings_of(describe(), pixels_, schedule_, optimizer_ ? optimizer_->kind() : "");
}

// In an order in which what is most likely to be refused comes first.
std::vector<StatePart> Trainer::state_parts() {
  std::vector<StatePart> parts;
  parts.push_back({"settings.", [this] { return settings(); },
                   [this](const StateDict& state) { check_settings(state, settings()); }});
  parts.push_back({"run.", [this] { return state_of(at_); },
                   [this](const StateDict& state) {
                     const RunPosition at = position_from(state);
                     ATH_CHECK(at.epoch <= config_.epochs, "run: epoch must be at most {}, but is {}",
                               config_.epochs, at.epoch);
                     train_->start_epoch(at.epoch, at.epoch_samples);
                     at_ = at;
                   }});
  parts.push_back({"step.", [this] { return state_of(step_->read()); },
                   [this](const StateDict& state) {
                     StepState step = step_from(state);
                     step.seed = ranks_.seed(config_.seed);  // what was saved is rank 0's
                     step_->write(step);
                   }});
  for (auto& callback : callbacks_) {
    if (callback->state_name().empty()) continue;
    parts.push_back({prefix_of(*callback, parts), [this, &callback] { return callback->state_dict(*this); },
                     [this, &callback](const StateDict& state) { callback->load_state_dict(*this, state); }});
  }
  parts.push_back({"metrics.", [this] { return totals_of_all(); },
                   [this](const StateDict& state) { take_totals(state); }});
  const auto add = [&](const char* prefix, auto& part) {
    parts.push_back({prefix, [&part] { return part.state_dict(); },
                     [&part](const StateDict& state) { part.load_state_dict(state); }});
  };
  add("optimizer.", *optimizer_);
  if (ema_) add("ema.", *ema_);
  add("model.", *arena_);
  return parts;
}

/// A row for each rank, so that as many go on with the same bits.
StateDict Trainer::totals_of_all() const {
  StateDict state;
  const auto rows = static_cast<std::int64_t>(all_totals_.size()) / 3;
  state.set("train_totals", Tensor::from(all_totals_, {rows, 3}));
  return state;
}

void Trainer::take_totals(const StateDict& state) {
  const Tensor& saved = state.tensor("train_totals");
  state.require_all_used("metrics");
  ATH_CHECK(saved.dtype() == DType::f64 && saved.numel() > 0 && saved.numel() % 3 == 0,
            "metrics: train_totals must be f64 [ranks, 3], but is {} {}", name_of(saved.dtype()),
            saved.shape());
  const std::vector<double> rows = saved.to_vector();
  const auto ranks = rows.size() / 3, mine = static_cast<std::size_t>(ranks_.rank());
  std::vector<double> totals(3);
  if (ranks == static_cast<std::size_t>(ranks_.world_size())) {
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(3 * mine), 3, totals.begin());
  } else if (ranks_.first()) {
    for (std::size_t i = 0; i < rows.size(); ++i) totals[i % 3] += rows[i];
  }
  totals_.copy_bytes_from(Tensor::from(totals, {3}).to(config_.device));
}

void Trainer::go_on() {
  // Callbacks that only rank 0 has leave their state to it.
  const std::vector<StatePart> parts = state_parts();
  for (const StateDict::Entry& entry : resume_from_->state) {
    if (ranks_.first() || !entry.name.starts_with("callbacks.")) continue;
    const std::string prefix = entry.name.substr(0, entry.name.find('.', 10) + 1);
    const bool known =
        std::any_of(parts.begin(), parts.end(), [&](const StatePart& part) { return part.prefix == prefix; });
    if (!known) (void)resume_from_->state.under(prefix);
  }
  try {
    load_parts(parts, resume_from_->state);
  } catch (const ArgumentError& error) {
    detail::fail<>("--resume: {}: {}", resume_from_->path.string(), error.what());
  }
  resume_from_->state = {};  // lets the file go
  started_ -= std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(at_.elapsed_s));
  if (at_.ended) stop(*at_.ended, at_.why_ended);
  check_limits();
}

// What cannot be trained on takes no good checkpoint's place. All ranks come to the same answer.
bool Trainer::has_diverged() const {
  return step_->read().stuck_steps > 0 || (at_.validated && !std::isfinite(at_.validation.loss));
}

void Trainer::save() {
  if (!saves_ || saved_ == at_.attempted || has_diverged()) return;
  if (auto* watchdog = dist::Watchdog::current()) watchdog->takes_long();
  at_.elapsed_s = seconds_since_start();
  at_.ended.reset();
  at_.why_ended.clear();
  // Limits and signals are looked at anew; what a callback has decided is not.
  if (stopping_ && reason_ == StoppedBy::early_stop) {
    at_.ended = reason_;
    at_.why_ended = why_stopped_;
  }
  (void)step_->read();  // waits: after it, every step's result is here
  (void)step_->known();
  all_totals_ = ranks_.gather(totals_.to_vector());
  ranks_.write_state([&] { return save_parts(state_parts()); },
                     [&](const StateDict& state, const dist::ReadTensor& read) {
                       newest_saved_ = folder_->save(at_.attempted, state, read);
                     });
  if (auto* watchdog = dist::Watchdog::current()) watchdog->takes_long(-1);
  saved_ = at_.attempted;
  at_.times.saving += seconds_since_start() - at_.elapsed_s;
}

}  // namespace athanor
