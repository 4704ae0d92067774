// Explained in docs/a_run_from_flag_to_file.md.
#include "trainer/run/step_executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "autograd/norm.h"
#include "autograd/shape.h"
#include "kernels/on_device.h"
#include "kernels/random_op.h"
#include "tensor/allocator.h"
#include "tensor/base/counters.h"
#include "tensor/base/error.h"
#include "trainer/finders/largest_fit.h"
#include "trainer/loggers/reports.h"

namespace athanor {
namespace {

GradientLimits gradient_limits_of(const TrainerConfig& config) {
  GradientLimits limits;
  if (config.clip_norm > 0) limits.max_norm = static_cast<float>(config.clip_norm);
  if (config.clip_value > 0) limits.max_value = static_cast<float>(config.clip_value);
  if (config.skip_outliers > 0) limits.outliers.z = static_cast<float>(config.skip_outliers);
  return limits;
}

void check_loss(std::string_view whose, const Tensor& loss) {
  ATH_CHECK(loss.defined() && loss.numel() == 1 && loss.dtype() == DType::f32 && loss.requires_grad(),
            "{}: needs the mean loss of its batch, one f32 that depends on parameters, but got {}", whose,
            !loss.defined()        ? "none"
            : loss.requires_grad() ? fmt::format("{} {}", loss.dtype(), loss.shape())
                                   : "one that depends on none");
}

/// Whether the batch's first samples are the first rows of each field.
bool can_be_cut(const Batch& batch) {
  return batch.size() > 0 && batch.views == 1 && !batch.rows.defined();
}

Batch first_samples(const Batch& batch, std::int64_t count) {
  Batch part = batch;
  const auto cut = [count](Tensor& field) {
    if (field.defined()) field = narrow(field, 0, 0, count);
  };
  cut(part.images);
  cut(part.labels);
  cut(part.samples);
  for (Tensor& field : part.more) cut(field);
  return part;
}

/// What gives each rank two images, for batch norms that see one value of an image in each channel.
std::string batch_for_norms(const Run& run) {
  const std::int64_t ranks = run.strategy.world_size(), needed = 2 * ranks,
                     has = run.pipeline.train().samples();
  const std::string shares = ranks > 1 ? fmt::format("2 images for each of {} ranks", ranks) : "2 images";
  if (has >= needed) return fmt::format("; --batch-size {} works, with {}", needed, shares);
  const bool may_join = ranks > 1 && has > 1 && !run.config.sync_bn;
  return fmt::format("; a batch needs {}, and there are only {} to train on{}", shares, has,
                     may_join ? "; --sync-bn makes the ranks share theirs" : "");
}

constexpr char kNothingFound[] = "every op returned finite numbers this time";

/// Index of the first parameter, in declared order, with a NaN or infinite gradient; arena.size() if none.
/// Checks only this rank's part: outside its shard, gradients are not sums. Waits.
std::size_t first_not_finite(const ParameterArena& arena) {
  for (int i = 0; i < arena.size(); ++i) {
    if (!arena.has_gradient(i)) continue;
    bool finite = true;
    const std::vector<double> gradient = arena.gradient(i).to_vector();
    arena.shards().for_each_run(i, [&](const Shards::Run& run) {
      const auto begin = gradient.begin() + run.begin;
      finite &= std::all_of(begin, begin + run.count, [](double g) { return std::isfinite(g); });
    });
    if (!finite) return static_cast<std::size_t>(i);
  }
  return static_cast<std::size_t>(arena.size());
}

// Checks every op, on each rank alone: a rank that finds an error cannot take part in collectives.
std::string find_op(const std::function<void()>& repeat) {
  try {
    const AnomalyMode checks;
    repeat();
  } catch (const PeerLostError&) {
    throw;
  } catch (const ArgumentError&) {
    return kNothingFound;  // a batch norm with a single value, now that it is alone
  } catch (const Error& error) {
    return error.what();
  }
  return kNothingFound;
}

}  // namespace

std::string_view advice_on_divergence(Precision precision) {
  return precision == Precision::f16 ? "lower --lr, set --clip-norm, or use --precision bf16 or f32"
                                     : "lower --lr, or set --clip-norm";
}

StepExecutor::StepExecutor(Run& run)
    : run_(run),
      scaling_(loss_scaling_of(run.config)),
      gradient_limits_(gradient_limits_of(run.config)),
      step_logs_(run.config.log_every, run.config.device),
      graphs_(run.config.graph,
              why_not_captured(run.config, run.strategy.world_size(), run.task, run.networks.all()), run.step,
              [this](const std::string& note) { run_.observers.note(note); }),
      named_(static_cast<std::size_t>(run.strategy.world_size())) {
  run.step.on_known([this](const StepState& state) {
    const StepReport report = report_of(state);
    run_.observers.notify(&Callback::on_step_result, report);
    if (const StepLog* const log = step_logs_.arrived(run_.metrics, report))
      run_.observers.notify(&Callback::on_step_log, *log);
  });
  run.syncs_before = host_syncs();
  if (!run.config.fused) no_fusion_.emplace();
  if (run.config.sync_bn || run.task.gathers()) joined_ = run.strategy.pass_network();
  if (run.config.sync_bn) norms_ = std::make_unique<dist::SyncBatchNorm>(run.task.networks(), *joined_);
  const auto reads = [](const auto& callback) { return callback->reads_weights(); };
  overlaps_weights_ =
      run.strategy.overlap_weights(run.task.networks(), std::ranges::none_of(run.observers.callbacks, reads));
}

StepLogs::Place StepExecutor::place_of_step(std::int64_t samples) const {
  const RunPosition& position = run_.position;
  return {.attempted = position.attempted + (samples > 0 ? 1 : 0),
          .epoch = position.epoch + 1,
          .samples = position.trained_samples + position.epoch_samples + samples,
          .times = run_.times.total()};
}

bool StepExecutor::step(std::int64_t samples) {
  RunPosition& position = run_.position;
  const std::optional<ForbidSync> forbid =
      run_.config.forbid_sync ? std::optional<ForbidSync>(std::in_place) : std::nullopt;
  const auto timed = run_.times.scope(&Times::update);
  const double waited_s = run_.step.waited_s();
  run_.networks.frozen().check();
  run_.observers.notify(&Callback::on_step_begin, info_of(position, run_.clock.seconds()));
  run_passes(samples);
  if (now_.dropped) {
    for (const auto& one : networks()) one->arena.buffers().restore();
    run_.metrics.restore();
    return false;
  }
  if (!run_.observers.hidden) step_logs_.send(run_.metrics, place_of_step(samples));
  run_.metrics.restore_if_skipped(run_.step);  // measurements of a skipped step are logged but not counted
  run_.step.publish();
  run_.times.move(run_.step.waited_s() - waited_s, &Times::update, &Times::device);
  position.epoch_samples += samples;
  ++position.attempted;
  ++position.epoch_steps;
  position.validated = false;
  return true;
}

// Trial steps, and those that look for an error, are not captured: they run once. Nor is the first step,
// which detects whether the run fits in memory: a graph's memory is never given back.
void StepExecutor::run_passes(std::int64_t samples, bool updates) {
  now_ = {.samples = samples, .joins = updates && (joined_ || !returns_loss())};
  now_.pass = place_of_pass(0, updates);
  StepGraphs::Key key{.samples = samples, .images = run_.pipeline.train().spec()};
  if (updates && !run_.observers.hidden && run_.position.attempted > 0)
    key.number = run_.task.captured_as(now_.pass);
  graphs_.begin(key, run_.metrics.totals().raw_data());
  const std::int64_t batch_size = run_.config.batch_size;
  Batch batch;  // this rank's part
  for (std::int64_t done = 0; done < samples; done += batch_size) {
    run_.pipeline.next(batch, run_.times);
    now_.pass = place_of_pass(done, updates);
    now_.updates = updates && done + batch_size >= samples;
    graphs_.pass(batch, run_.position.epoch, [this](const Batch& there) { run_work(there); });
  }
  graphs_.end();
  if (!updates || returns_loss()) return;
  const std::int64_t passes = (samples + batch_size - 1) / batch_size;
  for (const auto& one : networks()) one->check_passes(passes, run_.position.attempted);
}

BatchPosition StepExecutor::place_of_pass(std::int64_t done, bool updates) const {
  const std::int64_t batch_size = run_.config.batch_size;
  BatchPosition place =
      run_.pipeline.place(run_.position.epoch, run_.position.attempted - (updates ? 0 : 1),
                          std::min(batch_size, now_.samples - done), true, done / batch_size);
  place.may_be_captured = graphs_.may_capture();
  return place;
}

// A pass, with the work before the first one and after the last: what a graph captures.
void StepExecutor::run_work(const Batch& batch) {
  now_.made = 0;
  if (now_.pass.pass == 0) {
    run_.metrics.snapshot();
    for (const auto& one : networks()) one->begin_step();
    // Random numbers depend on the applied steps and on the index of the op within the step.
    on_device(run_.config.device, [](auto& context) { context.set_random_ops(0); });
  }
  // Ranks without samples contribute zeros, unless other ranks expect messages of their passes.
  if (batch.size() > 0 || now_.joins) run_.position.attempted > 0 ? run_pass(batch) : run_first_pass(batch);
  if (now_.updates && returns_loss()) update(*networks()[0]);
  if (!now_.updates || now_.dropped) return;
  for (const auto& one : networks()) one->arena.buffers().restore_if_skipped(run_.step);
  count_step(run_.step, scaling_, gradient_limits_.outliers);
}

void StepExecutor::run_pass(const Batch& batch) {
  const SampleScope samples({now_.pass.first, now_.pass.samples});
  for (const auto& one : networks()) one->begin_pass();
  const Tensor loss = [&] {
    const auto timed = run_.times.scope(&Times::forward);
    const Batch prepared = [&] {
      const auto copying = run_.times.scope(&Times::copy);
      return run_.pipeline.prepare(batch, now_.pass);
    }();
    const AllocTag named("activations");
    now_.first_node = Node::next_sequence();
    Step step(now_.pass, now_.draws,
              {.metrics = run_.metrics, .times = run_.times, .minimizer = this, .ranks = gathering()});
    Tensor mean = run_.task.training_step(prepared, step);
    check_result(mean);
    if (returns_loss() && !step.has_logged_loss()) step.log("loss", mean);
    run_.times.move(run_.strategy.take_waited_s(), &Times::forward, &Times::communication);
    return mean;
  }();
  if (returns_loss()) add_gradients(*networks()[0], loss);
}

// The first backward pass of a run detects whether a batch fits: in memory, and in batch norms.
void StepExecutor::run_first_pass(const Batch& batch) {
  const TrainerConfig& config = run_.config;
  try {
    run_pass(batch);
  } catch (TooFewValuesError& error) {
    error.append(batch_for_norms(run_));
    throw;
  } catch (const OutOfMemoryError& error) {
    if (run_.observers.hidden || joined_ || !can_be_cut(batch)) throw;
    now_.updates = false;  // on this rank alone: no rank waits for messages of the following passes
    // Later passes find the cache in other pieces, so the batch should need less than there is.
    if (config.memory_limit > 0)
      allocator_of(config.device).set_limit(static_cast<std::size_t>(config.memory_limit / 8 * 7));
    const std::int64_t fit = largest_that_fits(0, batch.size(), [&](std::int64_t samples) {
      try {
        now_.pass.samples = samples;
        // The second finds the cache of the first, in pieces. The run is over: their results are not used.
        for (int pass = 0; pass < 2; ++pass) run_pass(first_samples(batch, samples));
        return true;
      } catch (const OutOfMemoryError&) {
        return false;
      }
    });
    const std::int64_t batch_size = config.batch_size * fit / batch.size();
    if (batch_size == 0)
      detail::fail<OutOfMemoryError>("{}. The run does not fit in memory, not even with a smaller batch",
                                     error.what());
    detail::fail<OutOfMemoryError>(
        "{}. The run does not fit in memory, but would with --batch-size {}; --accumulate {} keeps the "
        "samples per step",
        error.what(), batch_size, config.accumulate * ((config.batch_size + batch_size - 1) / batch_size));
  }
}

// Each pass is weighted by its share of the step's samples, so a shorter last step is still an exact mean.
void StepExecutor::add_gradients(OptimizedNetworks& networks, const Tensor& loss) {
  // What is trained changes at the beginning of an epoch, if at all.
  if (run_.position.epoch_steps == 0 || networks.arena.updates() == 0) check_leaves(loss);
  const auto timed = run_.times.scope(&Times::backward);
  const auto silent = run_.strategy.begin_pass(networks.arena, now_.updates);
  networks.add_gradients(
      loss, run_.step,
      static_cast<float>(static_cast<double>(now_.pass.samples) / static_cast<double>(now_.samples)));
}

void StepExecutor::update(OptimizedNetworks& networks) {
  const auto timed = run_.times.scope(&Times::update);
  GradientLimits limits = gradient_limits_;
  limits.later_update = now_.made > 0;
  ++now_.made;
  now_.dropped = run_.limits.take(run_.strategy.reduce(networks.arena, run_.step, limits));
  if (now_.dropped) return;  // the votes say that the previous step was the last one
  if (!graphs_.sets_rates_of(networks)) networks.set_learning_rates(run_.step);
  networks.update(run_.step);
  if (!overlaps_weights_) run_.strategy.complete_weights();
  if (networks.average) networks.average->update(run_.step);
}

// For one of several optimizers, within a step of the task.
void StepExecutor::minimize(std::string_view optimizer, const Tensor& loss) {
  OptimizedNetworks& networks = run_.networks.called(optimizer);
  check_loss("minimize", loss);
  networks.count_pass(now_.pass.pass);
  run_.metrics.log(networks.loss_name, loss, now_.pass.samples, MetricReduce::mean);
  if (now_.dropped) return;
  add_gradients(networks, loss);
  if (!now_.updates) return;
  update(networks);
  run_.strategy.publish_weights();  // the rest of the step reads them
}

void StepExecutor::check_result(const Tensor& returned) const {
  if (returns_loss()) return check_loss("training_step", returned);
  ATH_CHECK(!returned.defined(),
            "training_step: with {} optimizers, must minimize() each of its losses, and return none",
            networks().size());
  ATH_CHECK(
      now_.made > 0 || !now_.updates,
      "training_step: with {} optimizers, must minimize() the loss of at least one, but did so for none",
      networks().size());
}

// Whatever a loss depends on, an optimizer of the run must hold, except tensors that the step itself has made
// leaves, such as an input whose gradient it asks for.
void StepExecutor::check_leaves(const Tensor& loss) const {
  const auto is_held = [this](const Leaf& leaf) {
    return std::ranges::any_of(networks(), [&](const auto& one) {
      return std::ranges::any_of(one->arena.parts(), [&](const auto& part) {
        return part.gradients.storage() == leaf.slice().storage();
      });
    });
  };
  for_each_leaf(loss, [&](const Leaf& leaf) {
    ATH_CHECK(leaf.sequence() >= now_.first_node || (leaf.bound() && is_held(leaf)),
              "{}: its loss must depend on trained parameters alone, but no optimizer of the run has {}; "
              "declare its network in the task, network(NAME, MODULE), register its module in the parent, "
              "register_module(NAME, MODULE), or freeze() it if it is not to be trained",
              returns_loss() ? "training_step" : "minimize",
              leaf.owner.empty() ? "a tensor that require_grad() was called on, and no module registers"
                                 : leaf.owner);
  });
}

void StepExecutor::check_overflows(const StepState& known, std::int64_t patience) {
  if (known.overflows_at_floor < patience || patience == 0) return;
  const AllowSync allow;
  const StepState now = run_.step.read();
  if (now.overflows_at_floor < patience) return;  // it has recovered since
  run_.strategy.complete_weights();
  std::string parameter = "none alone, only their norm";
  for (const ParameterArena* const arena : run_.networks.arenas()) {
    const std::size_t mine = first_not_finite(*arena);
    const std::vector<std::size_t> firsts = run_.strategy.gather(std::span(&mine, 1));
    const std::size_t first = *std::min_element(firsts.begin(), firsts.end());
    if (first == arena->parameters().size()) continue;
    parameter = arena->parameters()[first].name;
    break;
  }
  // Possibly on one rank only: takes the first rank with a finding.
  std::string op = kNothingFound;
  for (const std::string& found : run_.strategy.gather(find_op([this] { repeat_step(); }))) {
    if (op == kNothingFound) op = found;
  }
  detail::fail<DivergedError>(
      "trainer: gradients must be finite, but were not for {} consecutive steps{}; first bad parameter: {}; "
      "checked op by op: {}; {}",
      now.overflows_at_floor,
      now.loss_scale == 1 ? "" : fmt::format(" at loss scale {}, the lowest", now.loss_scale), parameter, op,
      advice_on_divergence(run_.config.precision));
}

// The batches repeat, as their order depends only on seed and epoch. So do weights and statistics, because
// the step was skipped. With only this rank's samples, a batch norm still gives an infinity for one.
void StepExecutor::repeat_step() {
  const RunPosition& position = run_.position;
  const std::int64_t samples =
      (position.epoch_samples - 1) % (run_.config.accumulate * run_.config.batch_size) + 1;
  run_.pipeline.start_epoch(position.epoch, position.epoch_samples - samples);
  if (norms_) norms_->leave();
  if (joined_) joined_.emplace();  // of this rank alone
  run_passes(samples, false);
}

// For debugging. Once per rank: layers that a model skips at random would give many lines.
void StepExecutor::report_unused_parameters() {
  if (!run_.config.collectives.compare_calls) return;
  for (int rank = 0; rank < run_.strategy.world_size(); ++rank) {
    char& named = named_[static_cast<std::size_t>(rank)];
    const std::vector<std::string> names = named ? std::vector<std::string>() : run_.strategy.unused(rank);
    if (names.empty()) continue;
    named = 1;
    run_.observers.note(fmt::format("rank {}: step {} had no gradient for {}", rank, run_.position.attempted,
                                    list_names(names)));
  }
}

}  // namespace athanor
