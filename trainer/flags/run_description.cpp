// Descriptions of a training: for its user, for other ranks, and for its model file.

#include <algorithm>
#include <limits>

#include <fmt/ranges.h>

#include "data/detail/duplicates.h"
#include "kernels/conv_choices.h"
#include "tensor/cores.h"
#include "tensor/counters.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "trainer/profile/layers.h"
#include "trainer/readable.h"
#include "trainer/run.h"
#include "trainer/trainer.h"

namespace athanor {

// Settings that ranks must share, or they would eventually diverge: those that affect a run's results, and
// those that determine its messages. A rank's own settings (threads, device, workers, paths) are not
// compared. Available before any collective.
StateDict Run::shared_settings() const {
  const auto given = [](bool is) { return is ? "given" : "not given"; };
  StateDict shared;
  const auto set = [&](const char* name, const auto& value) { shared.set(name, fmt::format("{}", value)); };
  set("strategy", name_of(strategy_.kind()));
  set("algorithm", dist::name_of(config_.collectives.algorithm));
  set("fast_dev_run", config_.fast_dev_run);
  set("checkpoint_dir", given(!config_.checkpoint_dir.empty()));
  set("checkpoint_every", config_.checkpoint_every);
  set("checkpoint_every_s", config_.checkpoint_every_s);
  set("phase", config_.phase);
  set("resume", given(!config_.resume.empty()));
  set("max_overflows_at_floor", config_.max_overflows_at_floor);
  for (const Setting& setting :
       settings_of(data_and_steps(), pipeline_.pixels(), schedules(), total_steps(), "")) {
    if (!shared.contains(setting.name)) shared.set(setting.name, setting.value);
  }
  return shared;
}

std::int64_t Run::total_steps() const {
  const std::int64_t all = config_.epochs * pipeline_.steps_per_epoch();
  if (config_.fast_dev_run > 0) return std::min(all, config_.fast_dev_run);
  return config_.max_steps > 0 ? std::min(all, config_.max_steps) : all;
}

FitInfo Run::data_and_steps() const {
  FitInfo info{config_, pipeline_.train().spec()};
  info.train_samples = pipeline_.train().samples();
  info.val_samples = pipeline_.held_out() ? pipeline_.held_out()->samples() : 0;
  info.class_names = train_.class_names();
  info.train_id = pipeline_.train_id();
  info.val_id = pipeline_.held_out_id();
  info.steps_per_epoch = pipeline_.steps_per_epoch();
  info.total_steps = total_steps();
  return info;
}

FitInfo Run::describe() const {
  FitInfo info = data_and_steps();
  for (const auto& networks : networks_) info.parameters += networks->arena().numel();
  info.frozen_parameters = frozen_.numel();
  info.threads = cpu_context().threads();
  info.ranks = strategy_.world_size();
  info.strategy = strategy_.describe(config_.ranks_note);
  info.data_source = pipeline_.describe();
  info.unused = pipeline_.unused();
  info.resumed_from = checkpoints_.resumed_from();
  info.attempted = position_.attempted;
  info.notes = checkpoints_.notes();
  for (const std::string& note :
       {trainer_.run_note_, left_out(), threads_note_, convs_note_, graphs_.why_off(), strategy_.advice()})
    if (!note.empty()) info.notes.push_back(note);
  info.nothing_to_do = nothing_to_do(info);
  info.classifies = task_.classifies();
  const std::vector<OptimizerSpec> optimizers = task_.optimizers();
  info.own_rates = std::any_of(optimizers.begin(), optimizers.end(),
                               [](const OptimizerSpec& spec) { return static_cast<bool>(spec.schedule); });
  info.own_optimizers = !optimizers.empty() &&
                        std::all_of(optimizers.begin(), optimizers.end(),
                                    [](const OptimizerSpec& spec) { return static_cast<bool>(spec.make); });
  return info;
}

// Images of a last, smaller batch, unless the user has limited an epoch to fewer batches anyway.
std::string Run::left_out() const {
  const Loader& train = pipeline_.train();
  const std::int64_t all = train.samples(), used = train.samples_per_epoch();
  if (used == all || pipeline_.samples_per_epoch() < used) return {};
  return fmt::format(
      "{} of {} training images {} left out of each epoch, because the last batch would have fewer than {} "
      "(--batch-size)",
      with_commas(all - used), with_commas(all), all - used == 1 ? "is" : "are", config_.batch_size);
}

// Validation images that are also trained on, on rank 0. With --strict-data, all ranks throw.
std::string Run::duplicates() {
  std::string note;
  if (!pipeline_.held_out() || held_out_ == &train_ || config_.question != Question::none) return note;
  const auto look = [&] {
    const detail::Duplicates found = detail::find_duplicates(train_, *held_out_, usable_cpus());
    if (found.count == 0) return;
    const bool one = found.count == 1, more = found.count > std::ssize(found.pairs);
    note = fmt::format(
        "{} of {} validation images {} also in the training set ({}{}): validation looks better than it is; "
        "remove {} from one of the two",
        with_commas(found.count), with_commas(held_out_->size()), one ? "is" : "are",
        printable(fmt::format("{}", fmt::join(found.pairs, ", "))), more ? ", ..." : "", one ? "it" : "them");
    ATH_CHECK(!config_.strict_data, "--strict-data: no image must be in both sets, but {}", note);
  };
  if (config_.strict_data) {
    strategy_.run_on_rank0(look);
  } else if (strategy_.is_rank0()) {
    look();
  }
  return note;
}

// The layers applied to a sample: of the network, if it is the only, unnamed one; else of the task's
// validation or, if that calls none, of its training.
std::string Run::summary() {
  const AllowSync allow;  // training has not begun
  nn::Module& networks = task_.networks();
  std::vector<Layer> layers;
  try {
    Loader loader(train_,
                  {.batch_size = 1, .workers = 0, .prefetch = 1, .epochs = 1, .device = config_.device});
    Batch one;
    loader.next(one);
    const Batch batch = pipeline_.prepare(one, 0, false);
    MetricSums sums(config_.device);
    std::int64_t draws = 0;
    Step step(pipeline_.place(0, 0, 1, false), draws, {.metrics = sums, .times = times_});
    networks.eval();
    layers = trace_layers(networks, [&] {
      if (task_.network_names() == std::vector<std::string>{""}) {
        networks(batch["image"]);
      } else {
        task_.validation_step(batch, step);
      }
    });
    const auto has_network = [](const Layer& layer) { return !layer.name.empty(); };
    if (std::none_of(layers.begin(), layers.end(), has_network))
      layers = trace_layers(networks, [&] { task_.training_step(batch, step); });
    if (task_.network_names() != std::vector<std::string>{""})  // metrics are not layers
      layers.erase(std::find_if(layers.rbegin(), layers.rend(), has_network).base(), layers.end());
  } catch (const Error&) {  // training will report the problem of the data
  }
  return table_of(layers, networks.parameter_count());
}

// As Limits will decide; an epoch with all steps done may still have to be reported.
std::string Run::nothing_to_do(const FitInfo& info) const {
  if (info.resumed_from.empty()) return {};
  if (position_.ended) {
    return fmt::format("{}; to continue it, resume it with more --epochs{}", position_.ended->why,
                       config_.early_stop && config_.early_stop->patience != EarlyStop::kNever
                           ? ", or another patience of --early-stop"
                           : "");
  }
  if (position_.attempted >= info.total_steps) {
    if (info.total_steps == config_.max_steps)
      return fmt::format("--max-steps {} is reached; to continue it, resume it with more", config_.max_steps);
    return fmt::format("{}; to continue it, resume it with more --epochs",
                       config_.epochs == 1 ? "its epoch is done"
                                           : fmt::format("all of its {} epochs are done", config_.epochs));
  }
  if (position_.elapsed_s < config_.max_time_s) return {};
  return fmt::format("--max-time is used up ({} of {}); raise it to continue the run",
                     duration(position_.elapsed_s), duration(config_.max_time_s));
}

ModelInfo Run::describe_model(std::uint64_t hash) {
  ModelInfo info{.program = config_.program, .model = config_.model, .classifies = task_.classifies()};
  info.images = train_.spec();
  info.class_names = train_.class_names();
  info.pixels = pipeline_.pixels();
  info.shorter_side = train_.shorter_side();
  info.precision = config_.precision;
  info.batch_size = config_.validated_at_once();
  info.ranks = strategy_.world_size();
  info.conv_choices = conv_choices();
  info.test_loss = info.test_accuracy = std::numeric_limits<double>::quiet_NaN();
  info.weights_hash = hash;
  return info;
}

void Run::describe_checkpoints() {
  ModelInfo info = describe_model(0);
  info.weights = "checkpoint";
  info.batch_size = 0;  // nothing is measured, and a checkpoint's bytes do not depend on the number of ranks
  info.ranks = 1;
  checkpoints_.describe(description(info));
}

}  // namespace athanor
