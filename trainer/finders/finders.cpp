// Trial steps before or during training: to find the learning rate, the number of threads, or the fastest
// convolutions. Their effects are undone.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <system_error>

#include "kernels/conv_choices.h"
#include "optim/load.h"
#include "optim/schedule.h"
#include "tensor/atomic_file.h"
#include "tensor/counters.h"
#include "tensor/error.h"
#include "trainer/freezing.h"
#include "trainer/gather_metrics.h"
#include "trainer/run.h"

namespace athanor {
namespace {

constexpr int kWarmSteps = 2, kTimedSteps = 10;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void write_svg(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace

// A step that ignores ends of epochs: the first batch follows the last. False if a signal ends it.
bool Run::try_step() {
  if (pipeline_.samples_of_step(position_.epoch_samples) == 0) {
    pipeline_.train().start_epoch(position_.epoch, 0);
    position_.epoch_samples = position_.epoch_steps = 0;
  }
  metrics_.clear();
  const bool made = train_step();
  strategy_.publish_weights();
  limits_.agree();
  return made && !limits_.stopped();
}

// Restores, from memory, everything that a checkpoint contains. If `body` throws, the run is over.
void Run::try_out(const std::function<void()>& body) {
  const std::int64_t syncs = host_syncs();
  strategy_.complete_weights();
  const StepState step = step_.read();
  (void)step_.known();  // reports the steps before
  std::vector<StatePart> parts = state_parts();
  std::erase_if(parts, [](const StatePart& part) {
    return !part.prefix.starts_with("optimizer.") && part.prefix != "ema." && part.prefix != "model.";
  });
  const StateDict state = clone_tensors(save_parts(parts));
  const RunPosition position = position_;
  const std::string rows = metrics_.rows();
  const std::vector<double> sums = metrics_.read();
  const Now now = now_;
  const bool training = task_.networks().training();
  trying_ = true;
  task_.networks().train();
  freeze_for_epoch(task_.networks(), config_.freeze, position_.epoch);
  pipeline_.train().start_epoch(position_.epoch, position_.epoch_samples);
  body();
  strategy_.complete_weights();
  (void)step_.read();
  for (const StatePart& part : parts) part.load(state.under(part.prefix));
  step_.write(step);
  position_ = position;
  scale_learning_rates(1);
  strategy_.complete_weights();
  metrics_.write(rows, sums);
  now_ = now;
  pipeline_.train().start_epoch(position_.epoch, position_.epoch_samples);
  task_.networks().train(training);
  syncs_before_ += host_syncs() - syncs;
  trying_ = false;
}

// The learning rate --------------------------------------------------------------------------------------

LrCurve Run::find_lr(const LrRange& range) {
  check(range);
  const std::vector<OptimizerSpec> own = task_.optimizers();
  ATH_CHECK(returns_loss() &&
                std::none_of(own.begin(), own.end(), [](const auto& spec) { return bool(spec.schedule); }),
            "--find-lr: the learning rate must come from --lr, but this task's {} own",
            returns_loss() ? "optimizer has a rate of its" : "optimizers have rates of their");
  LrCurve curve;
  try_out([&] {
    OptimizedNetworks& networks = *networks_[0];
    const Schedule schedule = networks.schedule();
    networks.optimizer().set_rate_scale(1);
    for (int i = 0; i < range.steps; ++i) {
      const double rate = range.rate(i);
      networks.set_schedule(schedules::constant(rate));
      if (!try_step()) break;
      const StepState step = step_.read();
      // Such a step has changed at most the loss scale.
      if (step.found_inf ? step.loss_scale > 1 : step.found_outlier) continue;
      const Metrics measured = metrics_.mean(metrics_.joined(gather(metrics_, strategy_)));
      const double none = std::numeric_limits<double>::quiet_NaN();
      if (!curve.add(rate, step.found_inf ? none : measured.loss)) break;
    }
    networks.set_schedule(schedule);
  });
  return curve;
}

FitReport Run::answer() {
  begin();
  const LrCurve curve = find_lr({});
  FitReport report;
  report.signal = limits_.signal();
  report.world_size = strategy_.world_size();
  report.strategy = strategy_.kind();
  report.stopped_by = limits_.ended().reason;
  if (report.signal == 0) {
    const LrAnswer found = answer_of(curve);
    if (!config_.lr_curve.empty())
      strategy_.run_on_rank0([&] { write_svg(config_.lr_curve, svg_of(curve, found)); });
    notify([&](Callback& c) {
      c.on_answer(trainer_, [&](int columns) { return text_of(curve, found, config_, columns); });
    });
  }
  strategy_.end_agreements();
  return report;
}

// The number of threads -----------------------------------------------------------------------------------

std::vector<double> Run::time_steps(int warm, int steps, double at_most_s) {
  std::vector<double> seconds;
  double all = 0;
  for (int i = 0; i < warm + steps; ++i) {
    const auto began = std::chrono::steady_clock::now();
    if (!try_step()) break;
    (void)step_.read();  // waits for the device
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (i >= warm) seconds.push_back(took);
    all += took;
    if (all > at_most_s && seconds.size() >= 3) break;
  }
  return seconds;
}

std::vector<double> Run::time_first_steps(int warm, int steps, double at_most_s) {
  begin();
  begin_epoch();
  trying_ = true;
  return time_steps(warm, steps, at_most_s);
}

// By rank 0's clock.
int Run::faster_threads(int all) {
  double seconds[2] = {};
  try_out([&] {
    for (const int i : {0, 1}) {
      cpu_context().set_threads(i == 0 ? 1 : all);
      seconds[i] = median(time_steps(kWarmSteps, kTimedSteps, std::numeric_limits<double>::infinity()));
    }
  });
  const std::string mine =
      fmt::format("{} {:.4g} {:.4g}", seconds[0] < seconds[1] ? 1 : all, seconds[0] * 1e3, seconds[1] * 1e3);
  const std::string chosen = strategy_.broadcast_from_rank0(mine);
  int threads = all;
  double one_ms = 0, all_ms = 0;
  std::sscanf(chosen.c_str(), "%d %lf %lf", &threads, &one_ms, &all_ms);
  threads_note_ =
      fmt::format("--threads auto: {}; a step takes {:.4g} ms with 1 thread, and {:.4g} ms with {}", threads,
                  one_ms, all_ms, all);
  return threads;
}

void Run::choose_threads() {
  if (config_.threads != TrainerConfig::kMeasuredThreads) return;
  // Rank 0's number: all ranks must take the same steps.
  const int all = std::stoi(strategy_.broadcast_from_rank0(fmt::to_string(cpu_context().threads())));
  int threads = all;
  if (position_.threads > 0) {
    threads = position_.threads;
    threads_note_ = fmt::format("--threads auto: {}, as when the run started", threads);
  } else if (config_.deterministic || !config_.device.is_cpu() || all == 1) {
    threads_note_ =
        fmt::format("--threads auto: {}{}", all,
                    config_.deterministic     ? ", all of them, because --deterministic measures nothing"
                    : config_.device.is_cpu() ? ", because there is one core"
                                              : ", all of them, because a GPU does the computing");
  } else {
    threads = faster_threads(all);
  }
  cpu_context().set_threads(threads);
  position_.threads = threads;
}

// The implementations of convolutions ---------------------------------------------------------------------

// A run keeps the choices it was begun with, in every resumed run, so that the bits of results stay the same.
void Run::choose_convs() {
  if (!checkpoints_.resumed_from().empty()) {
    set_conv_choices(position_.conv_choices);
    if (!position_.conv_choices.empty())
      convs_note_ = "--benchmark: convolutions use the implementations chosen when the run started";
    else if (config_.benchmark)
      convs_note_ = "--benchmark: nothing is measured, because the run was started without it";
    return;
  }
  if (config_.benchmark && (config_.deterministic || !config_.device.is_cpu())) {
    convs_note_ = fmt::format("--benchmark: nothing is measured, because {}",
                              config_.deterministic ? "--deterministic is given" : "a GPU always measures");
  } else if (config_.benchmark) {
    try_out([&] {
      const MeasureConvs measure;
      (void)try_step();
    });
    set_conv_choices(strategy_.broadcast_from_rank0(conv_choices()));
    const std::string chosen = conv_choices();
    convs_note_ =
        fmt::format("--benchmark: {} convolution passes were measured", std::ranges::count(chosen, '\n'));
  }
  position_.conv_choices = conv_choices();  // also those that the program has set
}

}  // namespace athanor
