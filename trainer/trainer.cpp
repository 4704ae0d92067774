#include "trainer/trainer.h"

#include <algorithm>
#include <optional>

#include "optim/sgd.h"
#include "tensor/error.h"
#include "trainer/early_stopping.h"
#include "trainer/json_lines.h"

namespace athanor {
namespace {

class MemoryLimit {
 public:
  MemoryLimit(Device device, std::int64_t bytes) : allocator_(allocator_of(device)) {
    if (bytes > 0) check_against_what_is_held(bytes);
    allocator_.set_limit(static_cast<std::size_t>(bytes));
    allocator_.reset_peak();
  }
  ~MemoryLimit() { allocator_.set_limit(0); }

 private:
  void check_against_what_is_held(std::int64_t bytes) {
    allocator_.trim();
    const AllocatorStats now = allocator_.stats();
    const std::int64_t held = now.current + now.cached;
    if (held < bytes) return;
    detail::fail<OutOfMemoryError>(
        "--memory-limit: must be above the {} bytes that model and data already hold, by as much as training "
        "needs, but is {}",
        held, bytes);
  }

  Allocator& allocator_;
};

Schedule default_schedule(double lr, std::int64_t steps) {
  return schedules::one_cycle({.max_rate = lr, .total = steps, .rise = 0.25, .final_div_factor = 1000});
}

LossScaling default_scaling(Precision precision) {
  return precision == Precision::f16 ? LossScaling{} : LossScaling::fixed(1);
}

GradientLimits limits_of(const TrainerConfig& config) {
  GradientLimits limits;
  if (config.clip_norm > 0) limits.max_norm = static_cast<float>(config.clip_norm);
  if (config.clip_value > 0) limits.max_value = static_cast<float>(config.clip_value);
  if (config.skip_outliers > 0) limits.outliers.z = static_cast<float>(config.skip_outliers);
  return limits;
}

}  // namespace

Trainer::Trainer(TrainerConfig config, dist::Transport* transport)
    : config_(std::move(config)), ranks_(transport, config_) {
  check(config_);
  if (!config_.metrics.empty() && ranks_.first()) add(std::make_unique<JsonLines>(config_.metrics));
  if (config_.early_stop) add(std::make_unique<EarlyStopping>(*config_.early_stop));
}

Trainer::~Trainer() = default;

void Trainer::add(std::unique_ptr<Callback> callback) {
  callbacks_.push_back(std::move(callback));
}

FitReport Trainer::fit(nn::Module& model, const Dataset& train, const Dataset& held_out) {
  check_fits(train, held_out);
  const SignalGuard signals;
  signals_ = &signals;
  const MemoryLimit limit(config_.device, config_.memory_limit);
  const Loaders loaders(*this);
  return on_device(config_.device, [&](auto& context) {
    if (const int count = threads(); count > 0) context.set_threads(count);
    try_threads(cpu_context().threads());
    context.deterministic = config_.deterministic;
    if constexpr (requires { context.tf32; }) context.tf32 = config_.precision == Precision::tf32;
    set_up(model, train, held_out);
    const auto norms = ranks_.join_norms(model);
    norms_ = norms.get();
    const auto overlap = ranks_.overlap_gather(
        model, std::none_of(callbacks_.begin(), callbacks_.end(),
                            [](const auto& callback) { return callback->reads_weights(); }));
    const BoundStep bound(context, *step_);
    std::optional<CheckpointFolder> folder;
    open_checkpoints(folder);
    for (auto& callback : callbacks_) callback->on_fit_begin(*this, describe());
    started_ = Clock::now();
    if (resume_from_) go_on();
    train_epochs();
    for (auto& callback : callbacks_) callback->on_train_end(*this);
    const FitReport report = finish();
    for (auto& callback : callbacks_) callback->on_fit_end(*this, report);
    return report;
  });
}

void Trainer::check_fits(const Dataset& train, const Dataset& held_out) const {
  ATH_CHECK(train.size() > 0 && held_out.size() > 0,
            "trainer: both data sets must hold samples, but got {} for training and {} for testing",
            train.size(), held_out.size());
  ATH_CHECK(
      train.spec() == held_out.spec(),
      "trainer: both data sets must have images of one shape and as many classes, but got {}x{}x{} with {} "
      "and {}x{}x{} with {}",
      train.spec().height, train.spec().width, train.spec().channels, train.spec().classes,
      held_out.spec().height, held_out.spec().width, held_out.spec().channels, held_out.spec().classes);
}

void Trainer::set_up(nn::Module& model, const Dataset& train, const Dataset& held_out) {
  model_ = &model;
  make_loaders(train, held_out);
  const std::int64_t steps = describe().total_steps;
  schedule_ = config_.schedule ? config_.schedule(config_.lr, steps) : default_schedule(config_.lr, steps);
  optimizer_.reset();
  ranks_.check_same(shared_settings());  // first of all: ranks that differ do not understand each other
  preprocess_ = std::make_unique<Preprocess>(train.spec(), pixels_, compute_dtype(config_.precision),
                                             config_.device, config_.augment, config_.seed);
  // Unlinked before the new one: a model trained again moves from one arena to the next.
  ranks_.let_go();
  arena_ = std::make_unique<ParameterArena>(
      model.parameters(), model.buffers(),
      ranks_.shared({.precision = config_.precision,
                     .device = config_.device,
                     .f32_gradients = config_.f32_gradients || config_.accumulate > 1}));
  ranks_.share(*arena_);
  meter_ = std::make_unique<GradientMeter>(*arena_);
  optimizer_ = config_.optimizer ? config_.optimizer(*arena_) : make_optimizer();
  ranks_.check_same(settings());
  ema_ = config_.ema_decay > 0 ? std::make_unique<Ema>(*arena_, EmaOptions{.decay = config_.ema_decay})
                               : nullptr;
  if (ema_) ema_->fuse_into(*optimizer_);
  totals_ = Tensor::zeros({3}, {DType::f64, config_.device});
  totals_before_ = empty_like(totals_);
  val_totals_ = empty_like(totals_);
  all_totals_.assign(3 * static_cast<std::size_t>(ranks_.world_size()), 0.0);
  scaling_ = config_.loss_scaling.value_or(default_scaling(config_.precision));
  limits_ = limits_of(config_);
  step_.emplace(config_.device, StepState{.seed = ranks_.seed(config_.seed), .loss_scale = scaling_.initial});
  step_->on_known([this](const StepState& state) { tell_result(state); });
  at_ = {};
  named_.assign(static_cast<std::size_t>(ranks_.world_size()), 0);
  stopping_ = false;
  reason_ = StoppedBy::epochs;
  why_stopped_.clear();
  syncs_at_start_ = host_syncs();
}

std::unique_ptr<Optimizer> Trainer::make_optimizer() const {
  // Decay pulls filters and matrices to zero; by default biases, scales and shifts, which are few, are left
  // alone.
  const bool all = config_.decay == Decay::all;
  const auto decays = [=](const Parameter& p) { return all || (p.decay && p.tensor.rank() >= 2); };
  std::vector<Sgd::Group> groups;
  for (const bool decay : {true, false}) {
    const auto wanted = [=](const Parameter& p) { return decays(p) == decay; };
    const auto parameters = arena_->parameters();
    if (std::none_of(parameters.begin(), parameters.end(), wanted)) continue;
    Sgd::Group group;
    group.parameters = wanted;
    group.options = {.momentum = static_cast<float>(config_.momentum),
                     .weight_decay = decay ? static_cast<float>(config_.weight_decay) : 0.0f,
                     .nesterov = config_.momentum > 0,
                     .decay = config_.decay};
    groups.push_back(std::move(group));
  }
  return std::make_unique<Sgd>(*arena_, groups, 0);
}

std::int64_t Trainer::steps_per_epoch() const {
  return (train_->batches_per_epoch() + config_.accumulate - 1) / config_.accumulate;
}

FitInfo Trainer::describe() const {
  FitInfo info{config_, train_->spec()};
  info.train_samples = train_->samples();
  info.val_samples = held_out_->samples();
  info.parameters = arena_ ? arena_->numel() : 0;
  info.steps_per_epoch = steps_per_epoch();
  info.total_steps = config_.epochs * info.steps_per_epoch;
  if (config_.max_steps > 0) info.total_steps = std::min(info.total_steps, config_.max_steps);
  if (config_.fast_dev_run) info.total_steps = 1;
  info.threads = cpu_context().threads();
  info.strategy = ranks_.describe(config_);
  info.feeding = describe_feeding();
  info.resumed_from = resume_from_ ? resume_from_->path : std::filesystem::path();
  info.attempted = at_.attempted;
  info.notes = notes_;
  info.nothing_to_do = nothing_to_do(info);
  return info;
}

double Trainer::seconds_since_start() const {
  return std::chrono::duration<double>(Clock::now() - started_).count();
}

void Trainer::stop(StoppedBy reason, std::string why) {
  if (stopping_) return;
  stopping_ = true;
  reason_ = reason;
  why_stopped_ = std::move(why);
}

void Trainer::check_limits() {
  agree(seconds_since_start() >= config_.max_time_s);
  if (at_.attempted >= config_.max_steps && config_.max_steps > 0) stop(StoppedBy::max_steps);
  if (config_.fast_dev_run) stop(StoppedBy::max_steps);
}

void Trainer::train_epochs() {
  model_->train();
  if (!ranks_.alone()) agree();
  // An epoch whose last step is done may still have to be reported, in a run that goes on.
  while (at_.epoch < config_.epochs && (!stopping_ || at_.epoch_steps > 0)) train_epoch();
}

void Trainer::train_epoch() {
  train_->start_epoch(at_.epoch, at_.epoch_samples);
  if (at_.epoch_steps == 0) {
    clear_metrics(totals_);
    at_.epoch_began_s = seconds_since_start();
  }
  times_before_ = at_.times;
  steps_before_ = at_.attempted;
  part_began_s_ = seconds_since_start();
  while (!stopping_) {
    const std::int64_t samples = train_step();
    if (samples == 0) break;
    at_.epoch_samples += samples;
    ++at_.attempted;
    ++at_.epoch_steps;
    const StepInfo info{.epoch = at_.epoch + 1,
                        .step = at_.epoch_steps,
                        .attempted = at_.attempted,
                        .samples = at_.epoch_samples,
                        .epoch_s = seconds_since_start() - at_.epoch_began_s};
    for (auto& callback : callbacks_) callback->on_step_end(*this, info);
    name_unused();
    check_limits();
    // After it: until ranks have agreed, they need not know of the same steps.
    check_overflows(step_->known(), config_.patience_at_floor);
    // Ranks have agreed: from here to the next gradients, the network is the weights'.
    const bool saves = config_.checkpoint_every > 0 && at_.attempted % config_.checkpoint_every == 0;
    saves ? ranks_.complete_weights() : ranks_.begin_gather();
    at_.times.communication += ranks_.take_seconds();
    if (saves) save();
  }
  ranks_.complete_weights();
  at_.times.communication += ranks_.take_seconds();
  clock_.start();
  const StepState last = step_->read();
  clock_.lap(at_.times.device);
  const double epoch_s = seconds_since_start() - at_.epoch_began_s;
  part_s_ = seconds_since_start() - part_began_s_;
  fed_ = train_->stats();
  check_overflows(last, std::min(config_.patience_at_floor, at_.epoch_steps));
  // What is not whole, or not reported, is so in the run that goes on from here.
  const bool whole = at_.epoch_samples == train_->samples_per_epoch();
  if (!whole) save();
  const bool reported = reason_ != StoppedBy::signal && report_epoch(epoch_s);
  if (!reported) save();
  if (!ranks_.alone()) agree();  // a callback may have had enough
  at_.train_s += epoch_s;
  at_.trained_samples += at_.epoch_samples;
  at_.epoch_samples = at_.epoch_steps = 0;
  ++at_.epoch;
  saved_ = -1;
  const bool over = stopping_ || at_.epoch == config_.epochs;
  if (reported && whole && (over || config_.checkpoint_every == 0)) save();
}

}  // namespace athanor
