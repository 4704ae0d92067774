// The parts of a training: creation, saving, resuming and reports.

#include "trainer/run.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "kernels/hash.h"
#include "optim/load.h"
#include "tensor/error.h"
#include "trainer/freezing.h"
#include "trainer/gather_metrics.h"
#include "trainer/loggers/reports.h"
#include "trainer/overflow.h"
#include "trainer/trainer.h"

namespace athanor {
namespace {

LossScaling make_scaling(const TrainerConfig& config) {
  return config.loss_scaling.value_or(config.precision == Precision::f16 ? LossScaling{}
                                                                         : LossScaling::fixed(1));
}

GradientLimits make_limits(const TrainerConfig& config) {
  GradientLimits limits;
  if (config.clip_norm > 0) limits.max_norm = static_cast<float>(config.clip_norm);
  if (config.clip_value > 0) limits.max_value = static_cast<float>(config.clip_value);
  if (config.skip_outliers > 0) limits.outliers.z = static_cast<float>(config.skip_outliers);
  return limits;
}

/// "loss is nan".
std::string not_finite(const Metrics& metrics) {
  if (!std::isfinite(metrics.loss)) return fmt::format("loss is {}", metrics.loss);
  for (const auto& [name, value] : metrics.others) {
    if (!std::isfinite(value)) return fmt::format("{} is {}", name, value);
  }
  return "accuracy is not a number";
}

/// "callbacks.NAME.", checked.
std::string prefix_of(const Callback& callback, const std::vector<StatePart>& parts) {
  const std::string name = callback.state_name();
  const bool plain =
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  ATH_CHECK(plain, "trainer: a callback's name must be of letters, digits and '_', but is '{}'", name);
  std::string prefix = fmt::format("callbacks.{}.", name);
  const bool taken =
      std::any_of(parts.begin(), parts.end(), [&](const StatePart& part) { return part.prefix == prefix; });
  ATH_CHECK(!taken, "trainer: callbacks with state must have different names, but two are called '{}'", name);
  return prefix;
}

}  // namespace

Run::Run(Trainer& trainer, const TrainerConfig& config, const Callbacks& callbacks,
         ParallelStrategy& strategy, ModelMemory& memory, Task& task, const Dataset& train,
         const Dataset* held_out)
    : trainer_(trainer),
      config_(config),
      callbacks_(callbacks),
      strategy_(strategy),
      vendor_(vendor_stats(config.device)),
      vendor_before_run_(vendor_),
      vendor_before_(vendor_),
      clock_(vendor_),
      limits_(config, strategy, clock_),
      times_(position_.times, vendor_),
      attached_(&strategy),
      pipeline_(config, strategy, train, held_out,
                [this](const std::string& note) { notify([&](Callback& c) { c.on_note(trainer_, note); }); }),
      task_(task),
      train_(train),
      held_out_(held_out),
      specs_(specs()),
      networks_(make_networks(memory)),
      frozen_(*memory.frozen),
      settings_(settle(settings_over(total_steps()))),
      scaling_(make_scaling(config)),
      gradient_limits_(make_limits(config)),
      step_(config.device, {.seed = config.seed, .loss_scale = scaling_.initial}),
      metrics_(config.device),
      step_logs_(config.log_every, config.device),
      checkpoints_(config, strategy, step_, metrics_),
      final_weights_(config, strategy),
      samples_(sample_folder()),
      graphs_(config.graph, why_not_captured(config, strategy.world_size(), task, networks_), step_,
              [this](const std::string& note) { notify([&](Callback& c) { c.on_note(trainer_, note); }); }),
      validation_(task, pipeline_, strategy, limits_, config, samples_ ? &*samples_ : nullptr, &graphs_),
      named_(static_cast<std::size_t>(strategy.world_size())) {
  for (const auto& networks : networks_) arenas_.push_back(&networks->arena());
  step_.on_known([this](const StepState& state) {
    const StepReport report = report_of(state);
    notify([&](Callback& c) { c.on_step_result(trainer_, report); });
    if (const StepLog* const log = step_logs_.arrived(metrics_, report))
      notify([&](Callback& c) { c.on_step_log(trainer_, *log); });
  });
  syncs_before_ = host_syncs();
  if (!config.fused) no_fusion_.emplace();
  if (config.sync_bn || task.gathers()) joined_ = strategy_.pass_network();
  if (config.sync_bn) norms_ = std::make_unique<dist::SyncBatchNorm>(task.networks(), *joined_);
  overlaps_weights_ = strategy_.overlap_weights(
      task.networks(), std::none_of(callbacks_.begin(), callbacks_.end(),
                                    [](const auto& callback) { return callback->reads_weights(); }));
}

std::vector<Setting> Run::settings_over(std::int64_t schedule_steps) const {
  return settings_of(data_and_steps(), pipeline_.pixels(), schedules(), schedule_steps, optimizer_kinds());
}

/// Checks that all ranks have the same settings. They may select the run's folder.
std::vector<Setting> Run::settle(std::vector<Setting> settings) {
  strategy_.check_same(state_of(settings));
  trainer_.choose_run_dir(settings);
  return settings;
}

// Beginning ------------------------------------------------------------------------------------------------

void Run::begin() {
  (void)state_parts();  // reports clashing callback names now, not at the first save
  const auto found = checkpoints_.open([this](std::int64_t steps) { return plan(steps); }, total_steps());
  if (found) position_ = *found;
  choose_threads();
  choose_convs();
  describe_checkpoints();
  const std::string duplicates = this->duplicates();
  trainer_.begin_record();
  FitInfo info = describe();
  if (config_.summary && strategy_.is_rank0() && info.nothing_to_do.empty()) info.summary = summary();
  notify([&](Callback& c) { c.on_fit_begin(trainer_, info); });
  if (!duplicates.empty()) notify([&](Callback& c) { c.on_note(trainer_, duplicates); });
  vendor_notes_.emplace(config_.device, [this](const std::string& note) {
    notify([&](Callback& c) { c.on_note(trainer_, note); });
  });
  clock_.start();
  if (found) resume();
  if (!found) try_validation();
  step_logs_.begin(place_of_step(0));
  task_.networks().train();
  limits_.agree(found.has_value());
}

/// An extended run keeps its learning rates, and then holds the last of them.
std::vector<Setting> Run::plan(std::int64_t schedule_steps) {
  if (schedule_steps < total_steps()) {
    hold_rates_after(schedule_steps);
    settings_ = settings_over(schedule_steps);
  }
  return settings_;
}

void Run::resume() {
  const bool ended = position_.ended.has_value();
  checkpoints_.resume(state_parts());
  if (!ended) position_.ended.reset();
  scale_learning_rates(1);
  strategy_.complete_weights();
  clock_.add(position_.elapsed_s);
  limits_.saved();
  if (position_.ended) limits_.stop(*position_.ended);
  limits_.after_step(position_.attempted);
}

// Names of different networks differ, so one dictionary holds them all, including frozen ones.
template <class Of> StatePart Run::part_of_networks(const char* prefix, const Of& of, FrozenWeights* frozen) {
  const auto save = [this, of, frozen] {
    StateDict all;
    for (const auto& networks : networks_) all.set_all("", of(*networks).state_dict());
    if (frozen) all.set_all("", frozen->state_dict());
    return all;
  };
  const auto load = [this, of, frozen](const StateDict& state) {
    if (returns_loss() && !frozen) return of(*networks_[0]).load_state_dict(state);
    std::vector<StateDict> given;
    for (const auto& networks : networks_) given.push_back(state.picked(of(*networks).state_dict().names()));
    const StateDict still = frozen ? state.picked(frozen->state_dict().names()) : StateDict();
    state.require_all_used("networks");
    for (std::size_t i = 0; i < given.size(); ++i)
      check_tensors(of(*networks_[i]).state_dict(), given[i], "networks");
    if (frozen) frozen->load_state_dict(still);
    for (std::size_t i = 0; i < given.size(); ++i) of(*networks_[i]).load_state_dict(given[i]);
  };
  return {prefix, save, load};
}

// In an order in which the likeliest mismatches come first.
std::vector<StatePart> Run::state_parts() {
  std::vector<StatePart> parts;
  parts.push_back({"settings.", [this] { return state_of(settings_); },
                   [this](const StateDict& state) { check_settings(state, settings_, true); }});
  parts.push_back({"run.", [this] { return state_of(position_); },
                   [this](const StateDict& state) {
                     const RunPosition position = position_from(state);
                     ATH_CHECK(position.epoch <= config_.epochs, "run: epoch must be at most {}, but is {}",
                               config_.epochs, position.epoch);
                     pipeline_.start_epoch(position.epoch, position.epoch_samples);
                     position_ = position;
                   }});
  parts.push_back({"step.", [this] { return state_of(step_.read()); },
                   [this](const StateDict& state) { step_.write(step_from(state)); }});
  for (const auto& callback : callbacks_) {
    if (callback->state_name().empty()) continue;
    parts.push_back(
        {prefix_of(*callback, parts), [this, &callback] { return callback->state_dict(trainer_); },
         [this, &callback](const StateDict& state) { callback->load_state_dict(trainer_, state); }});
  }
  parts.push_back(checkpoints_.metrics_part());
  parts.push_back(checkpoints_.best_part());
  for (const auto& networks : networks_) {
    Optimizer& optimizer = networks->optimizer();
    parts.push_back({returns_loss() ? "optimizer." : fmt::format("optimizer.{}.", networks->name()),
                     [&optimizer] { return optimizer.state_dict(); },
                     [&optimizer](const StateDict& state) { optimizer.load_state_dict(state); }});
  }
  if (config_.ema_decay > 0) {
    const auto average = [](OptimizedNetworks& of) -> Ema& { return *of.average(); };
    parts.push_back(part_of_networks("ema.", average, nullptr));
  }
  parts.push_back(weights_part());
  return parts;
}

StatePart Run::weights_part() {
  const auto arena = [](OptimizedNetworks& of) -> ParameterArena& { return of.arena(); };
  return part_of_networks("model.", arena, frozen_.empty() ? nullptr : &frozen_);
}

// Between steps --------------------------------------------------------------------------------------------

void Run::begin_epoch() {
  freeze_for_epoch(task_.networks(), config_.freeze, position_.epoch);
  if (!config_.freeze.empty()) graphs_.clear();
  pipeline_.start_epoch(position_.epoch, position_.epoch_samples);
  if (position_.epoch_steps == 0) {
    metrics_.clear();
    position_.epoch_began_s = clock_.seconds();
  }
  times_before_ = times_.total();
  steps_before_ = position_.attempted;
  part_began_s_ = clock_.seconds();
}

StepLogs::Place Run::place_of_step(std::int64_t samples) const {
  return {.attempted = position_.attempted + (samples > 0 ? 1 : 0),
          .epoch = position_.epoch + 1,
          .samples = position_.trained_samples + position_.epoch_samples + samples,
          .times = times_.total()};
}

// Measurements of a skipped step are logged but not counted.
void Run::settle_metrics(std::int64_t samples) {
  if (!trying_) step_logs_.send(metrics_, place_of_step(samples));
  metrics_.restore_if_skipped(step_);
}

Metrics Run::running_metrics() const {
  const AllowSync allow;
  return metrics_.mean(metrics_.read_rows());
}

void Run::scale_learning_rates(double factor) {
  position_.rate_scale *= factor;
  for (const auto& networks : networks_)
    networks->optimizer().set_rate_scale(static_cast<float>(position_.rate_scale));
}

void Run::weights_changed() {
  position_.validated = position_.averages_hold = false;
  strategy_.complete_weights();
}

// Another program may remove them.
void Run::keep_folders() {
  std::string note;
  strategy_.run_on_rank0([&] {
    const bool run_dir = trainer_.remake_run_dir();
    const bool checkpoints = checkpoints_.remake_folder();
    if (run_dir || checkpoints)
      note = fmt::format("{} was removed while the run went on, and was made again",
                         (run_dir ? config_.run_dir : config_.checkpoint_dir).string());
  });
  if (!note.empty()) notify([&](Callback& c) { c.on_note(trainer_, note); });
}

void Run::save() {
  strategy_.complete_weights();
  keep_folders();
  if (!checkpoints_.save(position_, limits_, clock_, times_, state_parts())) return;
  limits_.saved();
  tell_of_checkpoint();
}

// A checkpoint due after an epoch's last step is saved after the epoch's report, so that a resumed run does
// not repeat the report.
bool Run::save_is_due() const {
  return checkpoints_.due(position_.attempted) && pipeline_.samples_of_step(position_.epoch_samples) > 0;
}

std::string Run::last_checkpoint() const {
  if (!strategy_.is_rank0()) return {};  // only rank 0 knows what has been saved since
  const std::filesystem::path& newest = checkpoints_.newest();
  const std::filesystem::path last = newest.empty() ? checkpoints_.resumed_from() : newest;
  return last.empty() ? "" : fmt::format("; the last checkpoint is {}", last.string());
}

void Run::tell_of_checkpoint() {
  if (!checkpoints_.take_written()) return;
  notify([&](Callback& c) { c.on_checkpoint(trainer_, checkpoints_.newest()); });
}

void Run::check_overflows(const StepState& known, std::int64_t patience) {
  athanor::check_overflows(known, patience, step_, arenas_, strategy_, [this] { repeat_step(); });
}

bool Run::drop_step() {
  for (const auto& networks : networks_) networks->restore_buffers();
  metrics_.restore();
  return false;
}

// The batches repeat, as their order depends only on seed and epoch. So do weights and statistics, because
// the step was skipped. With only this rank's samples, a batch norm still gives an infinity for one.
void Run::repeat_step() {
  const std::int64_t samples = (position_.epoch_samples - 1) % (config_.accumulate * config_.batch_size) + 1;
  pipeline_.start_epoch(position_.epoch, position_.epoch_samples - samples);
  if (norms_) norms_->leave();
  if (joined_) joined_.emplace();  // of this rank alone
  run_passes(samples, false);
}

// For debugging. Once per rank: layers that a model skips at random would give many lines.
void Run::report_unused_parameters() {
  if (!config_.collectives.compare_calls) return;
  for (int rank = 0; rank < strategy_.world_size(); ++rank) {
    char& named = named_[static_cast<std::size_t>(rank)];
    const std::vector<std::string> names = named ? std::vector<std::string>() : strategy_.unused(rank);
    if (names.empty()) continue;
    named = 1;
    const std::string note =
        fmt::format("rank {}: step {} had no gradient for {}", rank, position_.attempted, list_names(names));
    notify([&](Callback& c) { c.on_note(trainer_, note); });
  }
}

// Reports --------------------------------------------------------------------------------------------------

// A trial run leaves nothing behind.
std::optional<SampleFolder> Run::sample_folder() const {
  if (config_.run_dir.empty() || config_.fast_dev_run || !strategy_.is_rank0()) return std::nullopt;
  return SampleFolder(
      config_.run_dir / "samples" / config_.phase,
      [this](const std::string& note) { notify([&](Callback& c) { c.on_note(trainer_, note); }); },
      [this](const Picture& picture) { notify([&](Callback& c) { c.on_picture(trainer_, picture); }); });
}

// False if a signal interrupted it.
bool Run::report_epoch(EpochReport report, double epoch_s) {
  const Metrics training = metrics_.mean(metrics_.joined(gather(metrics_, strategy_)));
  keep_folders();
  const bool validates = validates_after_epoch();
  if (validates) validate(position_.epoch + 1);
  if (limits_.signal() != 0) return false;
  fill(report, position_, step_.known(), training, validates ? position_.validation : Metrics::not_measured(),
       epoch_s, clock_.seconds());
  report.weights_hash = weights_hash();
  strategy_.check_weights(report.weights_hash);
  pipeline_.add_bad_samples(report, strategy_, validates);
  pipeline_.add_repeated_reads(report, strategy_);
  if (validates) report_validation(report);
  notify([&](Callback& c) { c.on_epoch_end(trainer_, report); });
  return true;
}

// The number of consecutive overflows at the lowest loss scale that is an error.
std::int64_t Run::overflow_patience() const {
  return config_.stop_on_nan ? 1 : config_.max_overflows_at_floor;
}

// Of all trained weights, and of frozen ones if any.
std::uint64_t Run::weights_hash() {
  const std::uint64_t trained = strategy_.weights_hash();
  return frozen_.empty() ? trained : kernels::mix64(trained) ^ frozen_.hash();
}

void Run::save_product(FitReport& report) {
  ModelInfo info = describe_model(report.weights_hash);
  info.test_loss = report.test_loss;
  info.test_accuracy = report.test_accuracy;
  final_weights_.save(weights_part().save, std::move(info), report);
}

// Refused plans of all ranks, of which only rank 0 may have a logger; the rest is this rank's.
VendorStats Run::vendor_stats_of_run() const {
  VendorStats stats = vendor_ - vendor_before_run_;
  if (config_.device.is_cpu()) return stats;
  double of_all[] = {static_cast<double>(stats.refused), static_cast<double>(stats.fallbacks)};
  strategy_.add_up(of_all);
  stats.refused = static_cast<std::int64_t>(of_all[0]);
  stats.fallbacks = static_cast<std::int64_t>(of_all[1]);
  return stats;
}

FitReport Run::finish() {
  const Metrics last =
      limits_.signal() == 0 && final_weights_.may_differ() ? keep_last() : Metrics::not_measured();
  notify([&](Callback& c) { c.on_train_end(trainer_); });
  limits_.agree();
  if (!position_.validated && limits_.signal() == 0) validate(position_.epoch);
  checkpoints_.wait();
  tell_of_checkpoint();
  if (const std::string best = checkpoints_.describe_best(); !best.empty())
    notify([&](Callback& c) { c.on_note(trainer_, "best checkpoints by " + best); });
  const Metrics test = position_.validated ? position_.validation : Metrics::not_measured();
  if (!test.finite)
    limits_.diverged(fmt::format("the last validation's {}; {}{}", not_finite(test),
                                 advice_on_divergence(config_.precision), last_checkpoint()));
  FitReport report = report_of(position_, step_.read(), test, clock_.seconds());
  for (Ema* const shown : averages()) {  // the caller gets the tested weights
    shown->swap();
    strategy_.complete_weights();
  }
  strategy_.broadcast_buffers();  // of the averages, if they were just swapped in
  report.signal = limits_.signal();
  report.weights_hash = weights_hash();
  report.world_size = strategy_.world_size();
  report.strategy = strategy_.kind();
  report.host_syncs = host_syncs() - syncs_before_;
  report.peak_bytes = allocator_of(config_.device).stats().peak;
  report.graphs = graphs_.captured();
  report.graph_launches = graphs_.launched();
  report.vendor = vendor_stats_of_run();
  report.stopped_by = limits_.ended().reason;
  report.checkpoint = checkpoints_.newest();
  report.last = last;
  keep_folders();
  std::exception_ptr no_room;  // thrown after the results were reported
  try {
    if (report.signal == 0 && test.finite && final_weights_.wanted()) save_product(report);
  } catch (const IoError&) {
    no_room = std::current_exception();
    report.model.clear();
  }
  strategy_.end_agreements();
  notify([&](Callback& c) { c.on_fit_end(trainer_, report); });
  if (no_room) std::rethrow_exception(no_room);
  return report;
}

}  // namespace athanor
