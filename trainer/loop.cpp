// Explained in docs/a_run_from_flag_to_file.md.
#include "trainer/loop.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "tensor/allocator.h"
#include "tensor/base/counters.h"
#include "tensor/base/error.h"
#include "tensor/stream.h"
#include "trainer/finders/finders.h"
#include "trainer/loggers/reports.h"
#include "trainer/run/run_info.h"

namespace athanor {
namespace {

/// "loss is nan".
std::string not_finite(const Metrics& metrics) {
  if (!std::isfinite(metrics.loss)) return fmt::format("loss is {}", metrics.loss);
  for (const auto& [name, value] : metrics.others) {
    if (!std::isfinite(value)) return fmt::format("{} is {}", name, value);
  }
  return "accuracy is not a number";
}

/// The number of consecutive overflows at the lowest loss scale that is an error.
std::int64_t overflow_patience(const TrainerConfig& config) {
  return config.stop_on_nan ? 1 : config.max_overflows_at_floor;
}

}  // namespace

TrainingLoop::TrainingLoop(Run& run)
    : run_(run),
      position_(run.position),
      steps_(run),
      checkpoints_(run),
      final_weights_(run),
      validation_(run, steps_, checkpoints_),
      vendor_before_(vendor_stats(run.config.device)) {
  began_.vendor = vendor_before_;
}

FitReport TrainingLoop::train() {
  begin();
  // In a resumed run, an epoch with all steps done may still have to be reported.
  while (position_.epoch < run_.config.epochs && (!run_.limits.stopped() || position_.epoch_steps > 0)) {
    begin_epoch();
    while (!run_.limits.stopped() && train_step()) after_step();
    end_epoch();
  }
  return finish();
}

void TrainingLoop::begin() {
  const bool resumed = checkpoints_.open();
  const std::string notes[] = {choose_threads(run_, steps_), choose_convs(run_, steps_, resumed),
                               steps_.graphs().why_off()};
  checkpoints_.describe();
  const std::string duplicates = find_duplicates(run_);
  run_.dir.begin(run_.observers);
  run_.observers.notify(&Callback::on_fit_begin, describe(run_, checkpoints_, notes));
  run_.observers.note(duplicates);
  vendor_notes_.emplace(run_.config.device, [this](const std::string& note) { run_.observers.note(note); });
  run_.clock.start();
  resumed ? checkpoints_.resume() : validation_.try_out();
  steps_.begin();
  run_.task.networks().train();
  run_.limits.agree(resumed);
}

void TrainingLoop::begin_epoch() {
  run_.networks.freeze(position_.epoch);
  if (!run_.config.freeze.empty()) steps_.graphs().clear();
  run_.pipeline.start_epoch(position_.epoch, position_.epoch_samples);
  if (position_.epoch_steps == 0) {
    run_.metrics.clear();
    position_.epoch_began_s = run_.clock.seconds();
  }
  began_.times = run_.times.total();
  began_.steps = position_.attempted;
  began_.after_s = run_.clock.seconds() - position_.epoch_began_s;
}

// False at the end of the epoch, or if training ends.
bool TrainingLoop::train_step() {
  const std::int64_t samples = run_.pipeline.samples_of_step(position_.epoch_samples);
  return samples > 0 && validation_.within_epoch() && steps_.step(samples);
}

void TrainingLoop::after_step() {
  if (run_.config.sync_each_step) synchronize(run_.config.device);
  if (run_.config.empty_cache) allocator_of(run_.config.device).trim();
  run_.observers.notify(&Callback::on_step_end, info_of(position_, run_.clock.seconds()));
  steps_.report_unused_parameters();
  run_.limits.after_step(position_.attempted);
  steps_.check_overflows(run_.strategy.known(run_.step), overflow_patience(run_.config));
  // A checkpoint due after an epoch's last step is saved after the epoch's report, so that a resumed run does
  // not repeat the report.
  const bool due = checkpoints_.due() && run_.pipeline.samples_of_step(position_.epoch_samples) > 0;
  if (run_.limits.take_save_request() || due) {
    run_.limits.agree(true);  // a resumed run must know whether it had ended
    checkpoints_.save();
  }
  run_.strategy.publish_weights();
}

void TrainingLoop::end_epoch() {
  run_.strategy.complete_weights();
  run_.limits.agree(true);
  const StepState last = [&] {
    const auto timed = run_.times.scope(&Times::device);
    return run_.step.read();
  }();
  const double epoch_s = run_.clock.seconds() - position_.epoch_began_s;
  EpochReport report = measure_training();
  steps_.check_overflows(last, std::min(overflow_patience(run_.config), position_.epoch_steps));
  // Whether the epoch is complete or reported stays the same in a resumed run.
  const bool whole = position_.epoch_samples == run_.pipeline.samples_per_epoch();
  if (!whole) checkpoints_.save();
  const bool reported = run_.limits.signal() == 0 && report_epoch(std::move(report), epoch_s);
  if (!reported) checkpoints_.save();
  run_.limits.agree();  // a callback may have requested a stop
  position_.train_s += epoch_s;
  position_.trained_samples += position_.epoch_samples;
  position_.epoch_samples = position_.epoch_steps = 0;
  ++position_.epoch;
  const bool over = run_.limits.stopped() || position_.epoch == run_.config.epochs;
  if (reported && whole && (over || run_.config.saves_each_epoch() || checkpoints_.due()))
    checkpoints_.save();
}

// Times, bottleneck, loader, and what was tuned meanwhile.
EpochReport TrainingLoop::measure_training() {
  EpochReport report = run_.pipeline.begin_report(
      run_.times.total() - began_.times, run_.clock.seconds() - position_.epoch_began_s - began_.after_s,
      position_.attempted - began_.steps);
  const VendorStats& vendor = vendor_stats(run_.config.device);
  if (std::string line = describe_tuning(vendor - began_.vendor); !line.empty())
    report.notes.push_back(std::move(line));
  began_.vendor = vendor;
  return report;
}

// False if a signal interrupted it.
bool TrainingLoop::report_epoch(EpochReport report, double epoch_s) {
  const Metrics training = run_.training_metrics();
  checkpoints_.keep_folders();
  const bool validates = validation_.due_after_epoch();
  if (validates) validation_.run(position_.epoch + 1);
  if (run_.limits.signal() != 0) return false;
  fill(report, position_, run_.step.known(), training,
       validates ? position_.validation : Metrics::not_measured(), epoch_s, run_.clock.seconds());
  report.weights_hash = run_.networks.weights_hash();
  run_.strategy.check_weights(report.weights_hash);
  run_.pipeline.add_bad_samples(report, run_.strategy, validates);
  run_.pipeline.add_repeated_reads(report, run_.strategy);
  if (validates) validation_.report(report);
  run_.observers.notify(&Callback::on_epoch_end, report);
  return true;
}

FitReport TrainingLoop::finish() {
  Limits& limits = run_.limits;
  std::optional<Metrics> last;
  if (limits.signal() == 0 && final_weights_.may_differ()) last = validation_.of_last_step();
  if (last) final_weights_.save_last(*last);
  run_.observers.notify(&Callback::on_train_end);
  limits.agree();
  if (!position_.validated && limits.signal() == 0) validation_.run(position_.epoch);
  checkpoints_.wait();
  if (const std::string best = checkpoints_.describe_best(); !best.empty())
    run_.observers.note("best checkpoints by " + best);
  const Metrics test = position_.validated ? position_.validation : Metrics::not_measured();
  if (!test.finite)
    limits.diverged(fmt::format("the last validation's {}; {}{}", not_finite(test),
                                advice_on_divergence(run_.config.precision), checkpoints_.last()));
  FitReport report = report_of(position_, run_.step.read(), test, run_.clock.seconds());
  for (Ema* const shown : run_.averages()) {  // the caller gets the tested weights
    shown->swap();
    run_.strategy.complete_weights();
  }
  run_.strategy.broadcast_buffers();  // of the averages, if they were just swapped in
  report.signal = limits.signal();
  report.weights_hash = run_.networks.weights_hash();
  report.world_size = run_.strategy.world_size();
  report.strategy = run_.strategy.kind();
  report.host_syncs = host_syncs() - run_.syncs_before;
  report.peak_bytes = allocator_of(run_.config.device).stats().peak;
  report.graphs = steps_.graphs().captured();
  report.graph_launches = steps_.graphs().launched();
  report.vendor = vendor_stats_of_run();
  report.stopped_by = limits.ended().reason;
  report.checkpoint = checkpoints_.newest();
  report.last = last.value_or(Metrics::not_measured());
  checkpoints_.keep_folders();
  std::exception_ptr no_room;  // thrown after the results were reported
  try {
    if (report.signal == 0 && test.finite && final_weights_.wanted()) final_weights_.save(test, report);
  } catch (const IoError&) {
    no_room = std::current_exception();
    report.model.clear();
  }
  run_.strategy.end_agreements();
  run_.observers.notify(&Callback::on_fit_end, report);
  if (no_room) std::rethrow_exception(no_room);
  return report;
}

// Refused plans of all ranks, of which only rank 0 may have a logger; the rest is this rank's.
VendorStats TrainingLoop::vendor_stats_of_run() const {
  VendorStats stats = vendor_stats(run_.config.device) - vendor_before_;
  if (run_.config.device.is_cpu()) return stats;
  double of_all[] = {static_cast<double>(stats.refused), static_cast<double>(stats.fallbacks)};
  run_.strategy.add_up(of_all);
  stats.refused = static_cast<std::int64_t>(of_all[0]);
  stats.fallbacks = static_cast<std::int64_t>(of_all[1]);
  return stats;
}

FitReport TrainingLoop::answer() {
  begin();
  return answer_with_lr(run_, steps_);
}

LrCurve TrainingLoop::find_lr(const LrRange& range) {
  return athanor::find_lr(run_, steps_, range);
}

std::vector<double> TrainingLoop::time_first_steps(int warm, int steps, double at_most_s) {
  begin();
  begin_epoch();
  run_.observers.hidden = true;
  return time_steps(run_, steps_, warm, steps, at_most_s);
}

}  // namespace athanor
