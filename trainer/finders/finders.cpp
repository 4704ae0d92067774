#include "trainer/finders/finders.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <system_error>

#include "kernels/conv_choices.h"
#include "kernels/cpu/context.h"
#include "optim/load.h"
#include "optim/schedule.h"
#include "tensor/base/counters.h"
#include "tensor/base/error.h"
#include "tensor/io/atomic_file.h"

namespace athanor {
namespace {

/// Steps that are tried out: callbacks learn nothing of them, and undo() restores, from memory, everything
/// that a checkpoint contains. Between two steps, calls of all ranks. After an exception the run is over.
class Trial {
 public:
  explicit Trial(Run& run);
  void undo();

 private:
  Run& run_;
  std::int64_t syncs_;
  StepState step_;
  StateDict networks_;
  RunPosition position_;
  std::string rows_;
  std::vector<double> sums_;
  bool training_;
};

Trial::Trial(Run& run) : run_(run), syncs_(host_syncs()) {
  run.strategy.complete_weights();
  step_ = run.step.read();
  (void)run.step.known();  // reports the steps before
  networks_ = clone_tensors(save_parts(run.networks.state_parts()));
  position_ = run.position;
  rows_ = run.metrics.rows();
  sums_ = run.metrics.read();
  training_ = run.task.networks().training();
  run.observers.hidden = true;
  run.task.networks().train();
  run.networks.freeze(run.position.epoch);
  run.pipeline.train().start_epoch(run.position.epoch, run.position.epoch_samples);
}

void Trial::undo() {
  run_.strategy.complete_weights();
  (void)run_.step.read();
  for (const StatePart& part : run_.networks.state_parts()) part.load(networks_.under(part.prefix));
  run_.step.write(step_);
  run_.position = position_;
  run_.scale_learning_rates(1);
  run_.strategy.complete_weights();
  run_.metrics.write(rows_, sums_);
  run_.pipeline.train().start_epoch(run_.position.epoch, run_.position.epoch_samples);
  run_.task.networks().train(training_);
  run_.syncs_before += host_syncs() - syncs_;
  run_.observers.hidden = false;
}

// A step that ignores ends of epochs: the first batch follows the last. False if a signal ends it.
bool try_step(Run& run, StepExecutor& steps) {
  RunPosition& position = run.position;
  if (run.pipeline.samples_of_step(position.epoch_samples) == 0) {
    run.pipeline.train().start_epoch(position.epoch, 0);
    position.epoch_samples = position.epoch_steps = 0;
  }
  run.metrics.clear();
  const bool made = steps.step(run.pipeline.samples_of_step(position.epoch_samples));
  run.strategy.publish_weights();
  run.limits.agree();
  return made && !run.limits.stopped();
}

constexpr int kWarmSteps = 2, kTimedSteps = 10;

void write_svg(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  write_atomically(path, text);
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<double> time_steps(Run& run, StepExecutor& steps, int warm, int count, double at_most_s) {
  std::vector<double> seconds;
  double all = 0;
  for (int i = 0; i < warm + count; ++i) {
    const auto began = std::chrono::steady_clock::now();
    if (!try_step(run, steps)) break;
    (void)run.step.read();  // waits for the device
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (i >= warm) seconds.push_back(took);
    all += took;
    if (all > at_most_s && seconds.size() >= 3) break;
  }
  return seconds;
}

LrCurve find_lr(Run& run, StepExecutor& steps, const LrRange& range) {
  check(range);
  const bool one = run.networks.all().size() == 1;
  const auto is_own = [](const OptimizerSpec& spec) { return static_cast<bool>(spec.schedule); };
  ATH_CHECK(one && std::ranges::none_of(run.task.optimizers(), is_own),
            "--find-lr: the learning rate must come from --lr, but this task's {} own",
            one ? "optimizer has a rate of its" : "optimizers have rates of their");
  LrCurve curve;
  Trial trial(run);
  OptimizedNetworks& networks = *run.networks.all()[0];
  const Schedule schedule = networks.schedule;
  networks.optimizer->set_rate_scale(1);
  for (int i = 0; i < range.steps; ++i) {
    const double rate = range.rate(i);
    networks.schedule = schedules::constant(rate);
    if (!try_step(run, steps)) break;
    const StepState step = run.step.read();
    // Such a step has changed at most the loss scale.
    if (step.found_inf ? step.loss_scale > 1 : step.found_outlier) continue;
    const double loss = run.training_metrics().loss;
    if (!curve.add(rate, step.found_inf ? std::numeric_limits<double>::quiet_NaN() : loss)) break;
  }
  networks.schedule = schedule;
  trial.undo();
  return curve;
}

FitReport answer_with_lr(Run& run, StepExecutor& steps) {
  const LrCurve curve = find_lr(run, steps, {});
  FitReport report;
  report.signal = run.limits.signal();
  report.world_size = run.strategy.world_size();
  report.strategy = run.strategy.kind();
  report.stopped_by = run.limits.ended().reason;
  if (report.signal == 0) {
    const LrAnswer found = answer_of(curve);
    if (!run.config.lr_curve.empty())
      run.strategy.run_on_rank0([&] { write_svg(run.config.lr_curve, svg_of(curve, found)); });
    const Callback::AnswerText text = [&](int columns) { return text_of(curve, found, run.config, columns); };
    run.observers.notify(&Callback::on_answer, text);
  }
  run.strategy.end_agreements();
  return report;
}

// By the numbers and the clock of rank 0: all ranks must take the same steps.
std::string choose_threads(Run& run, StepExecutor& steps) {
  const TrainerConfig& config = run.config;
  if (config.threads != TrainerConfig::kMeasuredThreads) return {};
  const std::int64_t mine = cpu_context().threads();
  const int all = static_cast<int>(run.strategy.gather(std::span(&mine, 1))[0]);
  int threads = all;
  std::string note;
  if (run.position.threads > 0) {
    threads = run.position.threads;
    note = fmt::format("--threads auto: {}, as when the run started", threads);
  } else if (config.deterministic || !config.device.is_cpu() || all == 1) {
    note = fmt::format("--threads auto: {}{}", all,
                       config.deterministic     ? ", all of them, because --deterministic measures nothing"
                       : config.device.is_cpu() ? ", because there is one core"
                                                : ", all of them, because a GPU does the computing");
  } else {
    std::vector<double> seconds;
    Trial trial(run);
    for (const int count : {1, all}) {
      cpu_context().set_threads(count);
      seconds.push_back(
          median(time_steps(run, steps, kWarmSteps, kTimedSteps, std::numeric_limits<double>::infinity())));
    }
    trial.undo();
    seconds = run.strategy.gather<double>(seconds);
    threads = seconds[0] < seconds[1] ? 1 : all;
    note = fmt::format("--threads auto: {}; a step takes {:.4g} ms with 1 thread, and {:.4g} ms with {}",
                       threads, 1e3 * seconds[0], 1e3 * seconds[1], all);
  }
  cpu_context().set_threads(threads);
  run.position.threads = threads;
  return note;
}

std::string choose_convs(Run& run, StepExecutor& steps, bool resumed) {
  const TrainerConfig& config = run.config;
  if (resumed) {
    set_conv_choices(run.position.conv_choices);
    if (!run.position.conv_choices.empty())
      return "--benchmark: convolutions use the implementations chosen when the run started";
    return config.benchmark ? "--benchmark: nothing is measured, because the run was started without it" : "";
  }
  std::string note;
  if (config.benchmark && (config.deterministic || !config.device.is_cpu())) {
    note = fmt::format("--benchmark: nothing is measured, because {}",
                       config.deterministic ? "--deterministic is given" : "a GPU always measures");
  } else if (config.benchmark) {
    Trial trial(run);
    {
      const MeasureConvs measure;
      (void)try_step(run, steps);
    }
    trial.undo();
    set_conv_choices(run.strategy.broadcast_from_rank0(conv_choices()));
    note = fmt::format("--benchmark: {} convolution passes were measured",
                       std::ranges::count(conv_choices(), '\n'));
  }
  run.position.conv_choices = conv_choices();  // also those that the program has set
  return note;
}

}  // namespace athanor
