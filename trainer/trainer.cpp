#include "trainer/trainer.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/on_device.h"
#include "optim/step.h"
#include "tensor/cores.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "tensor/stream.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/checkpoints/run_folder.h"
#include "trainer/classifier.h"
#include "trainer/early_stopping.h"
#include "trainer/free_memory.h"
#include "trainer/loggers/json_lines.h"
#include "trainer/loggers/loggers.h"
#include "trainer/plateau.h"
#include "trainer/profile/profiler.h"
#include "trainer/report/detail/report_page.h"
#include "trainer/run.h"
#include "trainer/run_main.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

/// --memory-limit; by default on the CPU, the memory that the system or control group has left for this rank:
/// exceeding it would kill the process silently. Reserves a part for non-tensors. 0: no limit.
std::int64_t memory_limit(const TrainerConfig& config) {
  if (config.memory_limit > 0 || !config.device.is_cpu()) return config.memory_limit;
  const AllocatorStats now = allocator_of(config.device).stats();
  const std::optional<std::int64_t> free = free_memory();
  return free ? now.current + now.cached + *free / config.local_ranks / 10 * 9 : 0;
}

class MemoryLimit {
 public:
  explicit MemoryLimit(const TrainerConfig& config) : allocator_(allocator_of(config.device)) {
    if (config.memory_limit > 0) check_against_what_is_held(config.memory_limit);
    allocator_.set_limit(static_cast<std::size_t>(memory_limit(config)));
    allocator_.reset_peak();
  }
  ~MemoryLimit() { allocator_.set_limit(0); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  void check_against_what_is_held(std::int64_t bytes) {
    allocator_.trim();
    const AllocatorStats now = allocator_.stats();
    const std::int64_t held = now.current + now.cached;
    if (held < bytes) return;
    detail::fail<OutOfMemoryError>(
        "--memory-limit: must exceed the {} bytes held before training, of which model and data take {}, but "
        "is {}",
        held, now.current, bytes);
  }

  Allocator& allocator_;
};

// The OpenMP library aborts if it cannot create threads: here that is a reported error.
void try_threads(int count) {
  std::atomic<bool> over{false};
  std::vector<std::jthread> team;
  const struct Over {
    std::atomic<bool>& over;
    ~Over() { over = true, over.notify_all(); }
  } at_the_end{over};
  for (int i = 1; i < count; ++i) team.emplace_back([&] { over.wait(false); });
}

/// CPU threads of this rank; 0: unchanged.
int threads_of(const TrainerConfig& config) {
  if (config.threads > 0) return config.threads;
  const bool all = config.local_ranks > 1 || config.threads == TrainerConfig::kMeasuredThreads;
  return all ? std::max(1, usable_cores() / config.local_ranks) : 0;
}

template <class Context> void set_up(Context& context, const TrainerConfig& config) {
  if (const int count = threads_of(config); count > 0) context.set_threads(count);
  try_threads(cpu_context().threads());
  context.deterministic = config.deterministic;
  if constexpr (requires { context.tf32; }) context.tf32 = config.precision == Precision::tf32;
}

/// Checks that are possible before the first epoch. A custom task defines its own metrics.
void check_for_classifier(const TrainerConfig& config, const Dataset& train) {
  for (const std::optional<EarlyStop>& watched : {config.early_stop, config.monitor}) {
    if (watched) check_metric(*watched, {"train_loss", "val_loss", "val_accuracy"});
  }
  if (train.spec().classes != 1) return;
  const std::vector<std::string> names = train.class_names();
  detail::fail<>("data: images to classify must have two classes or more, but all have {}",
                 names.empty() ? "one" : fmt::format("'{}'", printable(names[0])));
}

/// --empty-cache and --sync-each-step.
class AfterStep final : public Callback {
 public:
  explicit AfterStep(const TrainerConfig& config) : config_(config) {
    ATH_CHECK(!config.forbid_sync,
              "--forbid-sync: cannot be combined with --empty-cache on or --sync-each-step on, which wait "
              "for the device");
  }
  void on_step_end(Trainer&, const StepInfo&) override {
    if (config_.sync_each_step) synchronize(config_.device);
    if (config_.empty_cache) allocator_of(config_.device).trim();
  }
  bool reads_weights() const override { return false; }

 private:
  const TrainerConfig& config_;
};

/// Null if the run's checkpoints are in the same folder, which also lock it.
std::unique_ptr<FolderLock> lock_run_dir(const TrainerConfig& config) {
  auto lock = std::make_unique<FolderLock>(config.run_dir, "--run-dir");
  std::error_code ignored;
  return fs::equivalent(config.run_dir, config.checkpoint_dir, ignored) ? nullptr : std::move(lock);
}

}  // namespace

Trainer::Trainer(TrainerConfig config, dist::Transport* transport)
    : config_(in_run_dir(std::move(config))),
      whole_(config_),
      strategy_(ParallelStrategy::make(transport, config_)) {
  check(config_);
  if (!config_.run_dir.empty() && strategy_->is_rank0()) run_lock_ = lock_run_dir(config_);
  if (!config_.metrics.empty() && strategy_->is_rank0()) add(std::make_unique<JsonLines>(config_.metrics));
  add_loggers(*this, config_);
  if (config_.profile != Profile::none) {
    auto profiler = std::make_unique<Profiler>(config_.profile, *strategy_);
    profiler_ = profiler.get();
    add(std::move(profiler));
  }
  if (config_.empty_cache || config_.sync_each_step) add(std::make_unique<AfterStep>(config_));
  if (config_.early_stop) add(std::make_unique<EarlyStopping>(*config_.early_stop, !config_.monitor));
  if (config_.monitor) add(std::make_unique<EarlyStopping>(*config_.monitor));
  set_plateau();
  add_page();
}

Trainer::~Trainer() {
  if (!unused_folder_.empty()) remove_unused_run_folder(unused_folder_);
}

void Trainer::add(std::unique_ptr<Callback> callback) {
  callbacks_.push_back(std::move(callback));
}

// A phase may have its own schedule.
void Trainer::set_plateau() {
  std::erase_if(callbacks_, [this](const auto& one) { return one.get() == plateau_; });
  plateau_ = nullptr;
  if (config_.schedule || config_.schedule_options.kind != ScheduleKind::plateau) return;
  add(std::make_unique<ReduceOnPlateau>(plateau_options(config_)));
  plateau_ = callbacks_.back().get();
}

void Trainer::add_page() {
  if (!config_.report || config_.fast_dev_run || config_.run_dir.empty() || !strategy_->is_rank0()) return;
  auto page = std::make_unique<report::ReportPage>(config_.run_dir, [this](const std::string& note) {
    for (const auto& callback : callbacks_) callback->on_note(*this, note);
  });
  page_ = page.get();
  add(std::move(page));
}

Trainer& Trainer::phase(const std::string& name, const std::function<void(TrainerConfig&)>& change) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_';
  });
  ATH_CHECK(plain, "phase: a name must be of letters, digits and '_', but is '{}'", name);
  ATH_CHECK(std::find(phases_.begin(), phases_.end(), name) == phases_.end(),
            "phase: '{}' must begin once, but begins again", name);
  ATH_CHECK(whole_.resume.empty() || whole_.resume == "auto",
            "--resume: must be auto if a run has phases, but is {}, a checkpoint of one phase",
            whole_.resume);
  TrainerConfig config = whole_;
  if (change) change(config);
  config.phase = name;
  if (!config.checkpoint_dir.empty()) config.checkpoint_dir /= name;
  check(config);
  config_ = std::move(config);
  set_plateau();
  phases_.push_back(name);
  return *this;
}

// The newest run with these settings that has a checkpoint but no final weights yet, and that no other
// process continues; null if there is none.
std::unique_ptr<FolderLock> Trainer::unfinished_run(const std::vector<Setting>& settings) const {
  for (const fs::path& folder : run_folders(config_.run_root)) {
    const fs::path saved = folder / "checkpoints" / config_.phase;
    const auto is_unfinished = [&] { return !fs::exists(model_path(folder, "")) && fs::is_directory(saved); };
    if (!is_unfinished()) continue;
    try {
      const NewestCheckpoint newest = newest_valid(saved);
      if (newest.path.empty()) continue;
      check_settings(newest.state.under("settings."), settings, false);
      auto lock = std::make_unique<FolderLock>(folder, "--run-dir");
      const CheckpointFolder checkpoints(saved);
      if (is_unfinished()) return lock;
    } catch (const Error&) {  // of other settings, or in use by another run
    }
  }
  return nullptr;
}

void Trainer::choose_run_dir(const std::vector<Setting>& settings) {
  if (config_.run_root.empty() || config_.fast_dev_run || config_.question != Question::none) return;
  fs::path chosen;
  strategy_->run_on_rank0([&] {
    if (config_.resume == "auto" && config_.checkpoint_dir.empty()) run_lock_ = unfinished_run(settings);
    if (!run_lock_) {
      unused_folder_ = make_run_folder(config_.run_root, &run_note_);
      run_lock_ = std::make_unique<FolderLock>(unused_folder_, "--run-dir");
    }
    chosen = run_lock_->folder();
    is_numbered_ = true;
  });
  chosen = strategy_->broadcast_from_rank0(chosen.string());
  const bool has_metrics = !config_.metrics.empty();
  for (TrainerConfig* const config : {&whole_, &config_}) {
    const bool has_checkpoints = !config->checkpoint_dir.empty();
    config->run_dir = chosen;
    config->run_root.clear();
    *config = in_run_dir(std::move(*config));
    if (!has_checkpoints && !config->phase.empty()) config->checkpoint_dir /= config->phase;
  }
  if (!strategy_->is_rank0()) return;
  if (!has_metrics && config_.log_json)
    callbacks_.insert(callbacks_.begin(), std::make_unique<JsonLines>(config_.metrics));
  add_page();
}

FitReport Trainer::fit(nn::Module& model, const Dataset& train, const Dataset& held_out) {
  check_for_classifier(config_, train);
  const Tensor weights = config_.balanced_classes ? balanced_weights(train).to(config_.device) : Tensor();
  Classifier classifier(model, train.spec().classes, config_.label_smoothing, weights);
  classifier.watch([&](const Tensor& losses, const Tensor& logits, const Batch& batch) {
    if (page_) page_->validated(losses, logits, batch, held_out);
  });
  return fit(classifier, train, held_out);
}

FitReport Trainer::fit(Task& task, const Dataset& train, const Dataset& held_out) {
  return fit(task, train, &held_out);
}

FitReport Trainer::fit(Task& task, const Dataset& train) {
  return fit(task, train, nullptr);
}

FitReport Trainer::fit(Task& task, const Dataset& train, const Dataset* held_out) {
  if (ended_phases_) return *ended_phases_;
  ATH_CHECK(!config_.augment.mixes() || (task.mixes_labels() && config_.views == 1),
            "--augment: mixup and cutmix need a task with a loss for mixed labels, which that of {} does not "
            "have; leave them out",
            config_.phase.empty() ? config_.program : config_.phase);
  why_stopped_.clear();
  begun_ = false;
  const MemoryLimit limit(config_);
  return on_device(config_.device, [&](auto& context) {
    set_up(context, config_);
    if (config_.question == Question::batch_size) return ended_phases_.emplace(find_batch_size(task, train));
    Run run(*this, config_, callbacks_, *strategy_, memory_, task, train, held_out);
    const struct Running {
      Trainer& of;
      ~Running() {
        of.why_stopped_ = of.run_->limits().ended().why;
        of.run_ = nullptr;
      }
    } running{*this};
    run_ = &run;
    const BoundStep bound(context, run.step());
    try {
      const bool asked = config_.question != Question::none;
      const FitReport report = asked ? run.answer() : run.train();
      if (asked || (!phases_.empty() && exit_code(report) != kExitDone)) ended_phases_ = report;
      return report;
    } catch (std::exception& error) {
      if (auto* const ours = dynamic_cast<Error*>(&error); ours && begun_)
        ours->append(run.last_checkpoint());
      tell_callbacks(error);
      throw;
    }
  });
}

// From here on the run writes to its folder, as all checks have passed. A refused run leaves an earlier run's
// files unchanged.
void Trainer::begin_record() {
  begun_ = true;
  unused_folder_.clear();
  if (!strategy_->is_rank0() || config_.run_dir.empty()) return;
  if (!config_.flags.empty()) write_config(config_.run_dir, config_);
  for (const auto& callback : callbacks_) callback->on_run_dir(*this, config_.run_dir);
}

/// On rank 0: creates the run's folder again if another program has removed it, or what it holds. Returns
/// whether it had.
bool Trainer::remake_run_dir() {
  if (!run_lock_) return false;
  std::error_code ignored;
  const bool emptied =
      begun_ && !config_.flags.empty() && !fs::exists(config_.run_dir / "config.json", ignored);
  if (!run_lock_->remake() && !emptied) return false;
  const fs::path& folder = run_lock_->folder();
  if (is_numbered_ && run_folders(folder.parent_path()).front() == folder) link_latest(folder);
  if (begun_) begin_record();
  return true;
}

void Trainer::tell_callbacks(const std::exception& error) {
  if (!begun_) return;
  for (const auto& callback : callbacks_) {
    try {
      callback->on_exception(*this, error);
    } catch (const std::exception&) {  // only the first error is reported
    }
  }
}

Run& Trainer::run() const {
  ATH_CHECK(run_, "trainer: only callbacks may ask this, and only while fit() runs");
  return *run_;
}

StateDict Trainer::weights() const {
  StateDict all;
  for (const auto& arena : memory_.arenas) all.set_all("", arena->state_dict());
  return all;
}

void Trainer::load_weights(const StateDict& weights) {
  for (const auto& arena : memory_.arenas)
    arena->load_state_dict(weights.picked(arena->state_dict().names()));
}

void Trainer::stop(StoppedBy reason, std::string why) {
  run().limits().stop({reason, std::move(why)});
}
nn::Module& Trainer::networks() const {
  return run().networks();
}
std::string Trainer::profile() const {
  return profiler_ ? profiler_->text() : "";
}
std::string Trainer::why_stopped() const {
  return run_ ? run_->limits().ended().why : why_stopped_;
}
const StepState& Trainer::state() const {
  return run().known();
}
const Times& Trainer::times() const {
  return run().times();
}
Metrics Trainer::running_metrics() const {
  return run().running_metrics();
}
void Trainer::scale_learning_rates(double factor) {
  ATH_CHECK(std::isfinite(factor) && factor > 0,
            "scale_learning_rates: must have a factor above 0, but got {}", factor);
  run().scale_learning_rates(factor);
}
LrCurve Trainer::find_lr(const LrRange& range) {
  return run().find_lr(range);
}
void Trainer::weights_changed() {
  run().weights_changed();
}
ValidatedModel Trainer::as_validated() const {
  return run().as_validated();
}

}  // namespace athanor
