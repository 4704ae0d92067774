#include "trainer/trainer.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/loss.h"
#include "kernels/copy.h"
#include "kernels/metrics.h"
#include "optim/sgd.h"
#include "tensor/error.h"
#include "trainer/early_stopping.h"
#include "trainer/json_lines.h"

namespace athanor {
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

/// Adds the time it lives to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() { total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double& total_;
  std::chrono::steady_clock::time_point start_;
};

class MemoryLimit {
 public:
  MemoryLimit(Device device, std::int64_t bytes) : allocator_(allocator_of(device)) {
    allocator_.set_limit(static_cast<std::size_t>(bytes));
    allocator_.reset_peak();
  }
  ~MemoryLimit() { allocator_.set_limit(0); }

 private:
  Allocator& allocator_;
};

Schedule default_schedule(double lr, std::int64_t steps) {
  return schedules::one_cycle({.max_rate = lr, .total = steps, .rise = 0.25, .final_div_factor = 1000});
}

void fill_zero(const Tensor& tensor) {
  on_device(tensor.device(), [&](auto& context) { kernels::fill(context, tensor, 0); });
}

}  // namespace

Trainer::Trainer(TrainerConfig config) : config_(std::move(config)) {
  check(config_);
  if (!config_.metrics.empty()) add(std::make_unique<JsonLines>(config_.metrics));
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
  return on_device(config_.device, [&](auto& context) {
    if (config_.threads > 0) context.set_threads(config_.threads);
    context.deterministic = config_.deterministic;
    if constexpr (requires { context.tf32; }) context.tf32 = config_.precision == Precision::tf32;
    set_up(model, train, held_out);
    const BoundStep bound(context, *step_);
    for (auto& callback : callbacks_) callback->on_fit_begin(*this, describe());
    started_ = Clock::now();
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
  const bool whole_batches = train.size() >= config_.batch_size;
  train_ = std::make_unique<Loader>(train, LoaderOptions{.batch_size = config_.batch_size,
                                                         .shuffle = true,
                                                         .drop_last = whole_batches,
                                                         .seed = config_.seed});
  const std::int64_t val_batch =
      config_.val_batch_size > 0 ? config_.val_batch_size : std::max<std::int64_t>(config_.batch_size, 256);
  held_out_ = std::make_unique<Loader>(held_out, LoaderOptions{.batch_size = val_batch});
  preprocess_ = std::make_unique<Preprocess>(train.spec(), measure(train), compute_dtype(config_.precision),
                                             config_.device, config_.augment, config_.seed);
  // Unlinked before the new one: a model trained again moves from one arena to the next.
  arena_ = std::make_unique<ParameterArena>(
      model.parameters(), model.buffers(),
      ArenaOptions{
          .precision = config_.precision, .device = config_.device, .f32_gradients = config_.accumulate > 1});
  meter_ = std::make_unique<GradientMeter>(*arena_);
  optimizer_ = config_.optimizer ? config_.optimizer(*arena_) : make_optimizer();
  const std::int64_t steps = describe().total_steps;
  schedule_ = config_.schedule ? config_.schedule(config_.lr, steps) : default_schedule(config_.lr, steps);
  totals_ = Tensor::zeros({3}, {DType::f64, config_.device});
  step_.emplace(config_.device, StepState{.seed = config_.seed});
  attempted_ = trained_samples_ = 0;
  train_s_ = 0;
  times_ = {};
  stopping_ = validated_ = false;
  reason_ = StoppedBy::epochs;
  why_stopped_.clear();
  syncs_at_start_ = host_syncs();
}

std::unique_ptr<Optimizer> Trainer::make_optimizer() const {
  // Decay pulls filters and matrices to zero; biases, scales and shifts are few and left alone.
  const auto decays = [](const Parameter& p) { return p.decay && p.tensor.rank() >= 2; };
  std::vector<Sgd::Group> groups;
  for (const bool decay : {true, false}) {
    const auto wanted = [=](const Parameter& p) { return decays(p) == decay; };
    const auto parameters = arena_->parameters();
    if (std::none_of(parameters.begin(), parameters.end(), wanted)) continue;
    Sgd::Group group;
    group.parameters = wanted;
    group.options = {.momentum = static_cast<float>(config_.momentum),
                     .weight_decay = decay ? static_cast<float>(config_.weight_decay) : 0.0f,
                     .nesterov = config_.momentum > 0};
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
  info.parameters = arena_->numel();
  info.steps_per_epoch = steps_per_epoch();
  info.total_steps = config_.epochs * info.steps_per_epoch;
  if (config_.max_steps > 0) info.total_steps = std::min(info.total_steps, config_.max_steps);
  if (config_.fast_dev_run) info.total_steps = 1;
  info.threads = cpu_context().threads();
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
  if (signals_->caught()) stop(StoppedBy::signal);
  if (attempted_ >= config_.max_steps && config_.max_steps > 0) stop(StoppedBy::max_steps);
  if (config_.fast_dev_run) stop(StoppedBy::max_steps);
  if (seconds_since_start() >= config_.max_time_s) stop(StoppedBy::max_time);
}

void Trainer::train_epochs() {
  model_->train();
  for (epoch_ = 0; epoch_ < config_.epochs && !stopping_; ++epoch_) train_epoch(epoch_);
}

void Trainer::train_epoch(std::int64_t epoch) {
  train_->start_epoch(epoch);
  fill_zero(totals_);
  const StepState before = step_->read();
  const double started = seconds_since_start();
  StepInfo info{.epoch = epoch + 1};
  epoch_samples_ = 0;
  while (!stopping_) {
    const std::int64_t samples = train_step();
    if (samples == 0) break;
    epoch_samples_ += samples;
    info.attempted = ++attempted_;
    ++info.step;
    info.samples = epoch_samples_;
    info.epoch_s = seconds_since_start() - started;
    for (auto& callback : callbacks_) callback->on_step_end(*this, info);
    check_limits();
  }
  const double epoch_s = seconds_since_start() - started;
  train_s_ += epoch_s;
  trained_samples_ += epoch_samples_;
  const StepState after = step_->read();
  if (after.applied_steps == before.applied_steps && after.overflow_steps > before.overflow_steps) {
    detail::fail<Error>(
        "trainer: some step of epoch {} must have finite gradients, but none of {} had: lower --lr or set "
        "--clip-norm",
        epoch + 1, info.step);
  }
  if (reason_ != StoppedBy::signal) report_epoch(epoch_s, epoch_samples_);
}

std::int64_t Trainer::train_step() {
  const std::optional<ForbidSync> forbid =
      config_.forbid_sync ? std::optional<ForbidSync>(std::in_place) : std::nullopt;
  // What this step will see, known before it starts: each pass weighs as many samples as it has, so that a
  // shorter last step is still an exact mean.
  const std::int64_t left = train_->samples_per_epoch() - epoch_samples_;
  const std::int64_t total = std::min(left, config_.accumulate * train_->options().batch_size);
  if (total == 0) return 0;
  arena_->snapshot_buffers();
  arena_->zero_grad();
  Batch batch;
  for (std::int64_t done = 0; done < total; done += batch.size()) {
    {
      const Stopwatch watch(times_.data);
      train_->next(batch);
    }
    backward_pass(batch, static_cast<double>(batch.size()) / static_cast<double>(total));
  }
  const Stopwatch watch(times_.update);
  update();
  return total;
}

void Trainer::backward_pass(const Batch& batch, double weight) {
  Tensor loss;
  {
    Tensor images;
    {
      const Stopwatch watch(times_.data);
      images = (*preprocess_)(batch, epoch_, true);
    }
    const Stopwatch watch(times_.forward);
    const Tensor target = batch.labels.to(config_.device);
    const Tensor logits = (*model_)(images);
    ATH_CHECK(logits.shape() == (Shape{batch.size(), train_->spec().classes}),
              "trainer: the model must return logits {}, but got {}",
              (Shape{batch.size(), train_->spec().classes}), logits.shape());
    loss = cross_entropy(logits, target, static_cast<float>(config_.label_smoothing));
    on_device(config_.device,
              [&](auto& context) { kernels::add_metrics(context, loss, logits, target, totals_); });
  }
  const Stopwatch watch(times_.backward);
  if (weight == 1) return backward(loss);
  const Tensor seed = empty_like(loss);
  on_device(config_.device, [&](auto& context) { kernels::fill(context, seed, weight); });
  backward(loss, seed);
}

void Trainer::update() {
  GradientLimits limits;
  if (config_.clip_norm > 0) limits.max_norm = static_cast<float>(config_.clip_norm);
  meter_->measure(*step_, limits);
  optimizer_->set_learning_rates(*step_, schedule_);
  optimizer_->step(*step_);
  arena_->restore_buffers_if_skipped(*step_);
  finish_step(*step_);
  validated_ = false;
}

Metrics Trainer::read_totals() const {
  const std::vector<double> total = totals_.to_vector();
  const double n = total[2];
  if (n == 0) return {kNotMeasured, kNotMeasured, 0};
  return {total[0] / n, total[1] / n, static_cast<std::int64_t>(n)};
}

Metrics Trainer::running_metrics() const {
  const AllowSync allow;
  return read_totals();
}

Metrics Trainer::validate() {
  const Stopwatch watch(times_.validation);
  const InferenceMode inference;
  model_->eval();
  fill_zero(totals_);
  held_out_->start_epoch(0);
  Batch batch;
  while (held_out_->next(batch)) {
    const Tensor logits = (*model_)((*preprocess_)(batch, 0, false));
    const Tensor target = batch.labels.to(config_.device);
    const Tensor loss = cross_entropy(logits, target);
    on_device(config_.device,
              [&](auto& context) { kernels::add_metrics(context, loss, logits, target, totals_); });
    if (signals_->caught()) stop(StoppedBy::signal);
    if (config_.fast_dev_run || reason_ == StoppedBy::signal) break;
  }
  model_->train();
  if (reason_ == StoppedBy::signal) return {kNotMeasured, kNotMeasured, 0};
  last_validation_ = read_totals();
  validated_ = true;
  return last_validation_;
}

void Trainer::report_epoch(double epoch_s, std::int64_t samples) {
  EpochReport report;
  report.epoch = epoch_ + 1;
  const Metrics training = read_totals(), validation = validate();
  report.train_loss = training.loss;
  report.train_accuracy = training.accuracy;
  report.val_loss = validation.loss;
  report.val_accuracy = validation.accuracy;
  report.images_per_s = static_cast<double>(samples) / std::max(epoch_s, 1e-9);
  report.wall_s = seconds_since_start();
  report.learning_rate = step_->known().learning_rate[0];
  report.weights_hash = arena_->weights_hash();
  for (auto& callback : callbacks_) callback->on_epoch_end(*this, report);
}

FitReport Trainer::finish() {
  FitReport report;
  report.signal = signals_->caught();
  const bool measure_now = !validated_ && report.signal == 0;
  const Metrics test = measure_now  ? validate()
                       : validated_ ? last_validation_
                                    : Metrics{kNotMeasured, kNotMeasured, 0};
  report.test_loss = test.loss;
  report.test_accuracy = test.accuracy;
  report.wall_s = seconds_since_start();
  report.images_per_s = static_cast<double>(trained_samples_) / std::max(train_s_, 1e-9);
  const StepState state = step_->read();
  report.steps = {.applied = state.applied_steps, .skipped_overflow = state.overflow_steps, .skipped_outlier = state.outlier_steps};
  report.epochs = epoch_;
  report.weights_hash = arena_->weights_hash();
  report.host_syncs = host_syncs() - syncs_at_start_;
  report.peak_bytes = allocator_of(config_.device).stats().peak;
  report.stopped_by = reason_;
  return report;
}

}  // namespace athanor
