#include "trainer/run/run.h"

#include <algorithm>

#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/gather_metrics.h"
#include "trainer/run/run_info.h"

namespace athanor {

std::vector<StatePart> Observers::state_parts() const {
  std::vector<StatePart> parts;
  for (const auto& callback : callbacks) {
    const std::string name = callback->state_name(), prefix = fmt::format("callbacks.{}.", name);
    if (name.empty()) continue;
    ATH_CHECK(is_name(name), "trainer: a callback's name must be of letters, digits and '_', but is '{}'",
              name);
    const bool taken =
        std::any_of(parts.begin(), parts.end(), [&](const StatePart& part) { return part.prefix == prefix; });
    ATH_CHECK(!taken, "trainer: callbacks with state must have different names, but two are called '{}'",
              name);
    parts.push_back(
        {prefix, [this, &callback] { return callback->state_dict(trainer); },
         [this, &callback](const StateDict& state) { callback->load_state_dict(trainer, state); }});
  }
  return parts;
}

LossScaling loss_scaling_of(const TrainerConfig& config) {
  return config.loss_scaling.value_or(config.precision == Precision::f16 ? LossScaling{}
                                                                         : LossScaling::fixed(1));
}

Run::Run(const Observers& who, const TrainerConfig& how, RunDir& where, ParallelStrategy& ranks,
         ModelMemory& memory, Task& what, const Dataset& train_on, const Dataset* validate_on)
    : config(how),
      dir(where),
      strategy(ranks),
      observers(who),
      clock(vendor_stats(how.device)),
      limits(how, ranks, clock),
      times(position.times, vendor_stats(how.device)),
      task(what),
      train(train_on),
      held_out(validate_on),
      pipeline(how, ranks, train_on, validate_on, [this](const std::string& note) { observers.note(note); }),
      networks(how, ranks, what),
      step(how.device, {.seed = how.seed, .loss_scale = loss_scaling_of(how).initial}),
      metrics(how.device, what.values_of_sums()) {
  networks.make_schedules(total_steps(), pipeline);
  strategy.check_same(shared_settings(*this));  // ranks that differ cannot communicate
  networks.make(memory, times);
  settings = settings_over(*this, total_steps());
  strategy.check_same(state_of(settings));
}

std::int64_t Run::total_steps() const {
  const std::int64_t all = config.epochs * pipeline.steps_per_epoch();
  if (config.fast_dev_run > 0) return std::min(all, config.fast_dev_run);
  return config.max_steps > 0 ? std::min(all, config.max_steps) : all;
}

const std::vector<Setting>& Run::plan(std::int64_t schedule_steps) {
  if (schedule_steps < total_steps()) {
    networks.hold_rates_after(schedule_steps, pipeline.steps_per_epoch());
    settings = settings_over(*this, schedule_steps);
  }
  return settings;
}

void Run::scale_learning_rates(double factor) {
  position.rate_scale *= factor;
  for (const auto& one : networks.all())
    one->optimizer->set_rate_scale(static_cast<float>(position.rate_scale));
}

void Run::weights_changed() {
  position.validated = position.averages_hold = false;
  strategy.complete_weights();
}

Metrics Run::training_metrics() {
  return metrics.mean(metrics.joined(gather(metrics, strategy)));
}

std::vector<Ema*> Run::averages() const {
  std::vector<Ema*> all;
  if (!position.averages_hold) return all;
  for (const auto& one : networks.all()) {
    if (one->average) all.push_back(&*one->average);
  }
  return all;
}

std::vector<StatePart> Run::state_parts() {
  return {{"settings.", [this] { return state_of(settings); },
           [this](const StateDict& state) { check_settings(state, settings, true); }},
          {"run.", [this] { return state_of(position); },
           [this](const StateDict& state) {
             const RunPosition saved = position_from(state);
             ATH_CHECK(saved.epoch <= config.epochs, "run: epoch must be at most {}, but is {}",
                       config.epochs, saved.epoch);
             pipeline.start_epoch(saved.epoch, saved.epoch_samples);
             position = saved;
           }},
          {"step.", [this] { return state_of(step.read()); },
           [this](const StateDict& state) { step.write(step_from(state)); }}};
}

}  // namespace athanor
