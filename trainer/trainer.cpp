#include "trainer/trainer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <thread>
#include <vector>

#include "data/check_labels.h"
#include "data/sample_weights.h"
#include "kernels/on_device.h"
#include "nn/scale_outputs.h"
#include "optim/step.h"
#include "tensor/base/cores.h"
#include "tensor/base/counters.h"
#include "tensor/base/error.h"
#include "tensor/base/free_memory.h"
#include "tensor/base/printable.h"
#include "trainer/classifier.h"
#include "trainer/early_stopping.h"
#include "trainer/loggers/json_lines.h"
#include "trainer/loggers/loggers.h"
#include "trainer/loop.h"
#include "trainer/multi_label.h"
#include "trainer/parallel_strategy.h"
#include "trainer/plateau.h"
#include "trainer/profile/profiler.h"
#include "trainer/regression.h"
#include "trainer/report/detail/report_page.h"
#include "trainer/run_main.h"

namespace athanor {
namespace {

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
  if (const int count = threads_of(config); count > 0) cpu_context().set_threads(count);
  try_threads(cpu_context().threads());
  context.deterministic = config.deterministic;
  if constexpr (requires { context.tf32; }) context.tf32 = config.precision == Precision::tf32;
}

/// A check that is possible before the first epoch. A custom task defines its own metrics.
void check_watched(const TrainerConfig& config) {
  std::vector<std::string> measured{"train_loss", "val_loss"};
  const auto add = [&](std::initializer_list<const char*> names) {
    measured.insert(measured.end(), names.begin(), names.end());
  };
  switch (config.task) {
    case LabelKind::classes: add({"val_accuracy"}); break;
    case LabelKind::multilabel:
      add({"val_mAP", "val_f1_micro", "val_f1_macro", "val_tuned_f1_micro", "val_tuned_f1_macro"});
      break;
    case LabelKind::values: add({"val_mae", "val_rmse", "val_r2"}); break;
  }
  for (const std::optional<EarlyStop>& watched : {config.early_stop, config.monitor}) {
    if (watched) check_metric(*watched, measured);
  }
}

void check_for_classifier(const Dataset& train) {
  if (train.spec().classes != 1) return;
  const std::vector<std::string> names = train.class_names();
  detail::fail<>("data: images to classify must have two classes or more, but all have {}",
                 names.empty() ? "one" : fmt::format("'{}'", printable(names[0])));
}

Tensor on(Device device, const Tensor& weights) {
  return weights.defined() ? weights.to(device) : weights;
}

}  // namespace

Trainer::Trainer(TrainerConfig config, dist::Transport* transport)
    : config_(in_run_dir(std::move(config))),
      whole_(config_),
      memory_(std::make_unique<ModelMemory>()),
      strategy_(ParallelStrategy::make(transport, config_)),
      dir_(std::make_unique<RunDir>(config_, whole_, *strategy_)) {
  check(config_);
  dir_->lock();
  if (!config_.metrics.empty() && strategy_->is_rank0()) add(std::make_unique<JsonLines>(config_.metrics));
  add_loggers(*this, config_);
  if (config_.profile != Profile::none) {
    auto profiler = std::make_unique<Profiler>(config_.profile, *strategy_);
    profiler_ = profiler.get();
    add(std::move(profiler));
  }
  ATH_CHECK(!config_.forbid_sync || !(config_.empty_cache || config_.sync_each_step),
            "--forbid-sync: cannot be combined with --empty-cache on or --sync-each-step on, which wait "
            "for the device");
  if (config_.early_stop) add(std::make_unique<EarlyStopping>(*config_.early_stop, !config_.monitor));
  if (config_.monitor) add(std::make_unique<EarlyStopping>(*config_.monitor));
  set_plateau();
  add_page();
}

Trainer::~Trainer() = default;

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
  ATH_CHECK(is_name(name), "phase: a name must be of letters, digits and '_', but is '{}'", name);
  ATH_CHECK(std::find(phases_.begin(), phases_.end(), name) == phases_.end(),
            "phase: '{}' must begin once, but begins again", name);
  ATH_CHECK(whole_.resume.empty() || whole_.resume == "auto",
            "--resume: must be auto if a run has phases, but is {}, a checkpoint of one phase",
            whole_.resume);
  TrainerConfig config = whole_;
  if (change) change(config);
  config.lr_is_fitted = config.lr_is_fitted && config.lr == whole_.lr;
  config.phase = name;
  if (!config.checkpoint_dir.empty()) config.checkpoint_dir /= name;
  check(config);
  config_ = std::move(config);
  set_plateau();
  phases_.push_back(name);
  return *this;
}

FitReport Trainer::fit(nn::Module& model, const Dataset& train, const Dataset& held_out) {
  check_watched(config_);
  const bool keeps_going = config_.bad_samples.keeps_going();
  check_labels(train, config_.task, "--train", keeps_going);
  if (config_.task != LabelKind::classes) check_labels(held_out, config_.task, "--val", keeps_going);
  TaskLoss loss = config_.loss;
  loss.weighs_samples = config_.sample_weights;
  if (loss.weighs_samples) (void)stored_sample_weights(train, "--sample-weights", keeps_going);
  const TestTimeAugmentation views(config_.tta, held_out.spec().height, held_out.spec().width,
                                   config_.device);
  if (config_.task == LabelKind::multilabel) {
    MultiLabel task(
        model, label_count(train), held_out.size(),
        {loss, config_.label_smoothing, on(config_.device, positive_weights(config_.class_weights, train))});
    task.validate_by(views);
    return fit(task, train, held_out);
  }
  if (config_.task == LabelKind::values) {
    if (!config_.model.empty()) nn::check_scalable(model, label_count(train));  // for its model file
    Regression task(model, scale_of_values(train), held_out.size(), config_.device, loss);
    task.validate_by(views);
    return fit(task, train, held_out);
  }
  check_for_classifier(train);
  Classifier classifier(model, train.spec().classes, config_.label_smoothing,
                        on(config_.device, class_weights(config_.class_weights, train)), loss);
  classifier.validate_by(views);
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
  const MemoryLimit limit(config_);
  return on_device(config_.device, [&](auto& context) {
    set_up(context, config_);
    if (config_.question == Question::batch_size) return ended_phases_.emplace(find_batch_size(task, train));
    Run run({*this, callbacks_}, config_, *dir_, *strategy_, *memory_, task, train, held_out);
    const bool has_metrics = !config_.metrics.empty();
    if (dir_->choose(run.settings) && strategy_->is_rank0()) {
      if (!has_metrics && config_.log_json)
        callbacks_.insert(callbacks_.begin(), std::make_unique<JsonLines>(config_.metrics));
      add_page();
    }
    TrainingLoop loop(run);
    const struct Running {
      Trainer& of;
      ~Running() {
        of.why_stopped_ = of.loop_->run().limits.ended().why;
        of.loop_ = nullptr;
      }
    } running{*this};
    loop_ = &loop;
    const BoundStep bound(context, run.step);
    try {
      const bool asked = config_.question != Question::none;
      const FitReport report = asked ? loop.answer() : loop.train();
      if (asked || (!phases_.empty() && exit_code(report) != kExitDone)) ended_phases_ = report;
      return report;
    } catch (std::exception& error) {
      if (!dir_->begun()) throw;
      if (auto* const ours = dynamic_cast<Error*>(&error)) ours->append(loop.last_checkpoint());
      for (const auto& callback : callbacks_) {
        try {
          callback->on_exception(*this, error);
        } catch (const std::exception&) {  // only the first error is reported
        }
      }
      throw;
    }
  });
}

TrainingLoop& Trainer::loop() const {
  ATH_CHECK(loop_, "trainer: only callbacks may ask this, and only while fit() runs");
  return *loop_;
}

const std::vector<std::unique_ptr<ParameterArena>>& Trainer::arenas() const {
  return memory_->arenas;
}

int Trainer::rank() const {
  return strategy_->rank();
}

int Trainer::world_size() const {
  return strategy_->world_size();
}

StateDict Trainer::weights() const {
  StateDict all;
  for (const auto& arena : arenas()) all.set_all("", arena->state_dict());
  return all;
}

void Trainer::load_weights(const StateDict& weights) {
  for (const auto& arena : arenas()) arena->load_state_dict(weights.picked(arena->state_dict().names()));
}

void Trainer::stop(StoppedBy reason, std::string why) {
  loop().run().limits.stop({reason, std::move(why)});
}
nn::Module& Trainer::networks() const {
  return loop().run().task.networks();
}
std::string Trainer::profile() const {
  return profiler_ ? profiler_->text() : "";
}
std::string Trainer::why_stopped() const {
  return loop_ ? loop_->run().limits.ended().why : why_stopped_;
}
const StepState& Trainer::state() const {
  return loop().run().step.known();
}
const Times& Trainer::times() const {
  return loop().run().times.total();
}
Metrics Trainer::running_metrics() const {
  const AllowSync allow;
  const MetricSums& sums = loop().run().metrics;
  return sums.mean(sums.read_rows());
}
void Trainer::scale_learning_rates(double factor) {
  ATH_CHECK(std::isfinite(factor) && factor > 0,
            "scale_learning_rates: must have a factor above 0, but got {}", factor);
  loop().run().scale_learning_rates(factor);
}
LrCurve Trainer::find_lr(const LrRange& range) {
  return loop().find_lr(range);
}
void Trainer::weights_changed() {
  loop().run().weights_changed();
}
ValidatedModel Trainer::as_validated() const {
  return {loop().run().averages(), *strategy_};
}

}  // namespace athanor
