#include "trainer/run/run_info.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "data/detail/duplicates.h"
#include "kernels/conv_choices.h"
#include "kernels/cpu/context.h"
#include "tensor/base/cores.h"
#include "tensor/base/counters.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/checkpoints/run_checkpoints.h"
#include "trainer/profile/layers.h"
#include "trainer/readable.h"

namespace athanor {
namespace {

FitInfo data_and_steps(const Run& run) {
  FitInfo info{run.config, run.train.spec()};
  info.train_samples = run.train.size();
  info.val_samples = run.pipeline.held_out() ? run.pipeline.held_out()->samples() : 0;
  info.class_names = run.train.class_names();
  info.train_id = run.pipeline.train_id();
  info.val_id = run.pipeline.held_out_id();
  info.steps_per_epoch = run.pipeline.steps_per_epoch();
  info.total_steps = run.total_steps();
  return info;
}

// Images of a last, smaller batch, unless the user has limited an epoch to fewer batches anyway.
std::string left_out(const Run& run) {
  const Loader& train = run.pipeline.train();
  const std::int64_t all = train.samples(), used = train.samples_per_epoch();
  if (used == all || run.pipeline.samples_per_epoch() < used) return {};
  return fmt::format(
      "{} of {} training images {} left out of each epoch, because the last batch would have fewer than {} "
      "(--batch-size)",
      with_commas(all - used), with_commas(all), all - used == 1 ? "is" : "are", run.config.batch_size);
}

// "training images have 160x160 pixels from epoch 1 on, 192x192 from epoch 11 on; validation images 224x224"
std::string image_sizes(const TrainerConfig& config) {
  const auto sides = [](const ImageSize& size) { return fmt::format("{}x{}", size.height, size.width); };
  std::string text;
  for (const SizeFrom& size : config.image_sizes)
    text += text.empty() ? fmt::format("training images have {} pixels from epoch 1 on", sides(size.size))
                         : fmt::format(", {} from epoch {} on", sides(size.size), size.epoch + 1);
  if (config.val_image_size != ImageSize{} && !text.empty())
    text += fmt::format("; validation images {}", sides(config.val_image_size));
  return text;
}

// The layers applied to a sample: of the network, if it is the only, unnamed one; else of the task's
// validation or, if that calls none, of its training.
std::string summary(Run& run) {
  const AllowSync allow;  // training has not begun
  nn::Module& networks = run.task.networks();
  std::vector<Layer> layers;
  try {
    Loader loader(run.train,
                  {.batch_size = 1, .workers = 0, .prefetch = 1, .epochs = 1, .device = run.config.device});
    Batch one;
    loader.next(one);
    const Batch batch = run.pipeline.prepare(one, 0, false);
    MetricSums sums(run.config.device);
    std::int64_t draws = 0;
    Step step(run.pipeline.place(0, 0, 1, false), draws, {.metrics = sums, .times = run.times});
    networks.eval();
    layers = trace_layers(networks, [&] {
      if (run.task.network_names() == std::vector<std::string>{""}) {
        networks(batch["image"]);
      } else {
        run.task.validation_step(batch, step);
      }
    });
    const auto has_network = [](const Layer& layer) { return !layer.name.empty(); };
    if (std::none_of(layers.begin(), layers.end(), has_network))
      layers = trace_layers(networks, [&] { run.task.training_step(batch, step); });
    if (run.task.network_names() != std::vector<std::string>{""})  // metrics are not layers
      layers.erase(std::find_if(layers.rbegin(), layers.rend(), has_network).base(), layers.end());
  } catch (const Error&) {  // training will report the problem of the data
  }
  return table_of(layers, networks.parameter_count());
}

// As Limits will decide; an epoch with all steps done may still have to be reported.
std::string nothing_to_do(const Run& run, const FitInfo& info) {
  if (info.resumed_from.empty()) return {};
  if (run.position.ended) {
    return fmt::format("{}; to continue it, resume it with more --epochs{}", run.position.ended->why,
                       run.config.early_stop && run.config.early_stop->patience != EarlyStop::kNever
                           ? ", or another patience of --early-stop"
                           : "");
  }
  if (run.position.attempted >= info.total_steps) {
    if (info.total_steps == run.config.max_steps)
      return fmt::format("--max-steps {} is reached; to continue it, resume it with more",
                         run.config.max_steps);
    return fmt::format("{}; to continue it, resume it with more --epochs",
                       run.config.epochs == 1
                           ? "its epoch is done"
                           : fmt::format("all of its {} epochs are done", run.config.epochs));
  }
  if (run.position.elapsed_s < run.config.max_time_s) return {};
  return fmt::format("--max-time is used up ({} of {}); raise it to continue the run",
                     duration(run.position.elapsed_s), duration(run.config.max_time_s));
}

}  // namespace

StateDict shared_settings(const Run& run) {
  std::vector<Setting> shared = settings_of_ranks(run.config);
  shared.push_back(
      {.name = "strategy", .called = "--strategy", .value = std::string(name_of(run.strategy.kind()))});
  for (Setting& one : settings_of(data_and_steps(run), run.pipeline.pixels(), run.networks.schedules(),
                                  run.total_steps(), ""))
    shared.push_back(std::move(one));
  return state_of(shared);
}

std::vector<Setting> settings_over(const Run& run, std::int64_t schedule_steps) {
  return settings_of(data_and_steps(run), run.pipeline.pixels(), run.networks.schedules(), schedule_steps,
                     run.networks.kinds());
}

FitInfo describe(Run& run, const RunCheckpoints& checkpoints, std::span<const std::string> notes) {
  FitInfo info = data_and_steps(run);
  for (const ParameterArena* const arena : run.networks.arenas()) info.parameters += arena->numel();
  info.frozen_parameters = run.networks.frozen().numel();
  info.threads = cpu_context().threads();
  info.ranks = run.strategy.world_size();
  info.strategy = run.strategy.describe(run.config.ranks_note);
  info.data_source = run.pipeline.describe();
  info.unused = run.pipeline.unused();
  info.resumed_from = checkpoints.resumed_from();
  info.attempted = run.position.attempted;
  info.notes = checkpoints.notes();
  for (const std::string& note : {run.dir.note(), left_out(run), image_sizes(run.config)})
    info.notes.push_back(note);
  info.notes.insert(info.notes.end(), notes.begin(), notes.end());
  std::erase(info.notes, "");
  info.nothing_to_do = nothing_to_do(run, info);
  info.classifies = run.task.classifies();
  const std::vector<OptimizerSpec> optimizers = run.task.optimizers();
  info.own_rates = std::any_of(optimizers.begin(), optimizers.end(),
                               [](const OptimizerSpec& spec) { return static_cast<bool>(spec.schedule); });
  info.own_optimizers = !optimizers.empty() &&
                        std::all_of(optimizers.begin(), optimizers.end(),
                                    [](const OptimizerSpec& spec) { return static_cast<bool>(spec.make); });
  if (run.config.summary && run.strategy.is_rank0() && info.nothing_to_do.empty())
    info.summary = summary(run);
  return info;
}

std::string find_duplicates(const Run& run) {
  std::string note;
  if (!run.pipeline.held_out() || run.held_out == &run.train || run.config.question != Question::none)
    return note;
  const auto look = [&] {
    const detail::Duplicates found = detail::find_duplicates(run.train, *run.held_out, usable_cpus());
    if (found.count == 0) return;
    const bool one = found.count == 1, more = found.count > std::ssize(found.pairs);
    note = fmt::format(
        "{} of {} validation images {} also in the training set ({}{}): validation looks better than it is; "
        "remove {} from one of the two",
        with_commas(found.count), with_commas(run.held_out->size()), one ? "is" : "are",
        printable(fmt::format("{}", fmt::join(found.pairs, ", "))), more ? ", ..." : "", one ? "it" : "them");
    ATH_CHECK(!run.config.strict_data, "--strict-data: no image must be in both sets, but {}", note);
  };
  if (run.config.strict_data) {
    run.strategy.run_on_rank0(look);
  } else if (run.strategy.is_rank0()) {
    look();
  }
  return note;
}

ModelInfo describe_model(const Run& run, std::uint64_t hash, const Metrics& test) {
  ModelInfo info{
      .program = run.config.program, .model = run.config.model, .classifies = run.task.classifies()};
  const Dataset& shown = run.held_out && run.config.val_image_size != ImageSize{} ? *run.held_out : run.train;
  info.images = shown.spec();
  info.class_names = run.train.class_names();
  info.pixels = run.pipeline.pixels();
  set_resizing(info, shown.resizing());
  info.precision = run.config.precision;
  info.batch_size = run.config.validated_at_once();
  info.tta = run.config.tta;
  info.ranks = run.strategy.world_size();
  info.conv_choices = conv_choices();
  info.test_loss = test.loss;
  info.test_accuracy = test.accuracy;
  info.weights_hash = hash;
  run.task.describe(info, test);
  return info;
}

}  // namespace athanor
