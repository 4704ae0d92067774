// Explained in docs/overlap.md.
#include "dist/gradient_sync.h"

#include <algorithm>
#include <cstring>

#include "autograd/engine.h"
#include "dist/bucket_runner.h"
#include "dist/collectives/exchange.h"
#include "dist/collectives/slice.h"
#include "kernels/accumulate.h"
#include "kernels/copy.h"
#include "kernels/on_device.h"
#include "optim/step.h"

namespace athanor::dist {

float batch_weight(std::int64_t samples, std::int64_t samples_of_all) {
  ATH_CHECK(samples >= 0 && samples <= samples_of_all && samples_of_all > 0,
            "batch_weight: samples of a rank must be at most those of all ranks, but got {} of {}", samples,
            samples_of_all);
  return static_cast<float>(static_cast<double>(samples) / static_cast<double>(samples_of_all));
}

namespace {

const ParameterArena& checked(const char* name, const ParameterArena& arena, const Communicator& comm) {
  const Device network = comm.transport().device();
  ATH_CHECK(arena.device() == network, "{}: parameters must be on {}, like the communicator, but are on {}",
            name, network.str(), arena.device().str());
  return arena;
}

void release(Leaf& leaf) {
  leaf.on_ready = nullptr;
  leaf.on_use = nullptr;
}

}  // namespace

// Part of a row, between the squares of all buckets and a flag per parameter.
struct GradientSync::AgreementRow {
  StopVote vote;
  std::int32_t number;

  static std::int64_t row_bytes(const BucketLayout& layout, const ParameterArena& arena) {
    const auto squares =
        static_cast<std::int64_t>(layout.buckets().size() * sizeof(double) + sizeof(AgreementRow));
    return align_elements(squares + arena.size(), sizeof(double));
  }
};

GradientSync::GradientSync(const char* name, Kind kind, ParameterArena& arena, Communicator& comm,
                           const SyncOptions& options)
    : name_(name),
      number_(options.number),
      agreement_(options.agreement),
      kind_(kind),
      arena_(arena),
      comm_(comm),
      layout_(checked(name, arena, comm), comm.world_size(), comm.options()),
      watched_(static_cast<std::size_t>(arena.size())),
      arrived_(static_cast<std::size_t>(arena.size())),
      missing_(layout_.buckets().size()),
      rows_(std::make_unique<Exchange>(comm, AgreementRow::row_bytes(layout_, arena))),
      runner_(std::make_unique<BucketRunner>(comm, options.overlap, make_collectives(kind))) {
  ATH_CHECK(arena.shards().sharded() == (kind == Kind::reduce_scatter),
            "{}: the arena must {}be sharded; make it with {}", name,
            kind == Kind::reduce_scatter ? "" : "not ",
            kind == Kind::reduce_scatter ? "dist::sharded()" : "dist::bucketed()");
  const AllocTag named("comm");
  squares_ = make_flat(static_cast<std::int64_t>(layout_.buckets().size()) * comm.world_size(), DType::f64,
                       arena.device());
  layout_.agree(name, comm);
  take_values_of_rank_0();
  watch();
}

GradientSync::~GradientSync() {
  for (const Ref<AutogradState>& leaf : watched_) {
    if (leaf) release(static_cast<Leaf&>(*leaf));
  }
}

std::vector<std::unique_ptr<Collective>> GradientSync::make_collectives(Kind kind) {
  const auto gradients_of = [&](const BucketLayout::Bucket& bucket) {
    return slice(arena_.parts()[static_cast<std::size_t>(bucket.part)].gradients, bucket.range);
  };
  std::int64_t most = 0;
  for (const BucketLayout::Bucket& bucket : layout_.buckets())
    most = std::max(most, scratch_bytes(comm_.options(), gradients_of(bucket), bucket.pieces));
  comm_.reserve(most);
  std::vector<std::unique_ptr<Collective>> collectives;
  for (const BucketLayout::Bucket& bucket : layout_.buckets()) {
    const Tensor gradients = gradients_of(bucket);
    collectives.push_back(kind == Kind::all_reduce
                              ? comm_.all_reduce(gradients, kernels::Combine::sum, bucket.pieces)
                              : comm_.reduce_scatter(gradients, kernels::Combine::sum, bucket.pieces));
  }
  return collectives;
}

// Beginning ------------------------------------------------------------------------------------------------

// A sharded arena has already copied the parameters at its creation.
void GradientSync::take_values_of_rank_0() {
  if (!arena_.shards().sharded()) {
    for (const ParameterArena::Part& part : arena_.parts()) comm_.run(*comm_.broadcast(part.masters, 0));
    arena_.weights_from_masters();
  }
  broadcast_buffers();
}

void GradientSync::broadcast_buffers() {
  if (!arena_.buffers().flat().defined()) return;
  settle();
  comm_.run(*comm_.broadcast(arena_.buffers().flat(), 0));
  arena_.buffers().bump();
}

// A step ---------------------------------------------------------------------------------------------------

GradientSync::NoSync::NoSync(GradientSync& sync) : sync_(sync) {
  ATH_CHECK(
      sync.runner_->launched() == 0,
      "{}: no_sync() must come before the step's last backward pass, but gradients are being sent; call "
      "reduce() first",
      sync.name_);
  ++sync.silent_;
}

// A layer that was frozen and unfrozen has a new leaf.
bool GradientSync::watches(int parameter) const {
  const Tensor& handle = arena_.parameters()[static_cast<std::size_t>(parameter)].tensor;
  return handle.autograd().get() == watched_[static_cast<std::size_t>(parameter)].get();
}

// Adds hooks for parameters that have come to need a gradient: unfrozen layers.
void GradientSync::watch() {
  for (int i = 0; i < arena_.size(); ++i) {
    if (watches(i)) continue;
    const Tensor& handle = arena_.parameters()[static_cast<std::size_t>(i)].tensor;
    Ref<AutogradState>& watched = watched_[static_cast<std::size_t>(i)];
    if (watched) release(static_cast<Leaf&>(*watched));
    watched = handle.autograd();
    if (!watched) continue;
    on_grad_ready(handle, [this, i] { ready(i); });
    if (kind_ == Kind::reduce_scatter) leaf_of(handle).on_use = [this, i] { read(i); };
  }
}

// Called at the first gradient. A leaf that is new since the last step may already be complete in this pass;
// its bucket then waits for reduce().
void GradientSync::begin_step() {
  if (begun_) return;
  ATH_CHECK(arena_.zeroed() != reduced_,
            "{}: gradients must be cleared before a step begins, but still hold the sums of reduce(); call "
            "arena.zero_grad() first",
            name_);
  check_weights();
  begun_ = true;
  watch();
  std::fill(arrived_.begin(), arrived_.end(), 0);
  for (std::size_t b = 0; b < missing_.size(); ++b) {
    const auto& parameters = layout_.buckets()[b].parameters;
    missing_[b] = static_cast<int>(std::count_if(parameters.begin(), parameters.end(), [&](int parameter) {
      return static_cast<bool>(watched_[static_cast<std::size_t>(parameter)]);
    }));
  }
}

void GradientSync::ready(int parameter) {
  begin_step();
  char& arrived = arrived_[static_cast<std::size_t>(parameter)];
  ATH_CHECK(!arrived,
            "{}: the gradient of {} must be complete after one backward pass, but a second one adds to it; "
            "put no_sync() "
            "around all but the last, and reduce() after it",
            name_, arena_.parameters()[static_cast<std::size_t>(parameter)].name);
  if (silent_ > 0) return;
  arrived = 1;
  const int bucket = layout_.bucket_of(parameter);
  if (bucket < 0) return;
  --missing_[static_cast<std::size_t>(bucket)];
  launch_complete();
  runner_->pump();
}

void GradientSync::launch_complete() {
  const auto count = static_cast<int>(layout_.buckets().size());
  while (runner_->launched() < count && missing_[static_cast<std::size_t>(runner_->launched())] == 0) {
    join_with_zeros(runner_->launched());
    runner_->launch();
  }
}

// Zeroes gradients that no pass of the step has written, even if a pass reached the parameter.
void GradientSync::join_with_zeros(int bucket) {
  for (const int parameter : layout_.buckets()[static_cast<std::size_t>(bucket)].parameters) {
    if (arena_.has_gradient(parameter)) continue;
    on_device(arena_.device(), [&](auto& context) { kernels::fill(context, arena_.gradient(parameter), 0); });
  }
}

void GradientSync::reduce(StepBuffer& step, const GradientLimits& limits) {
  check(limits);
  begin_step();
  for (int i = 0; i < arena_.size(); ++i) {
    ATH_CHECK(!arena_.has_gradient(i) || watches(i),
              "{}: {} must require its gradient when a step begins, but was unfrozen during the step", name_,
              arena_.parameters()[static_cast<std::size_t>(i)].name);
  }
  std::fill(missing_.begin(), missing_.end(), 0);
  launch_complete();
  runner_->finish();
  reduced_ = arena_.zeroed();
  begun_ = false;
  measure(step, limits);
}

// One message per rank: sums of squares of its own shards, its vote, and its used parameters. All ranks
// derive the same norm and outcome.
void GradientSync::measure(StepBuffer& step, const GradientLimits& limits) {
  const int rank = comm_.rank();
  const std::size_t buckets = layout_.buckets().size();
  const auto count = static_cast<std::int64_t>(buckets);
  const auto squares_of = [&](int of) {
    return as_type(rows_->table(), DType::f64,
                   of * rows_->row_bytes() / static_cast<std::int64_t>(sizeof(double)), count);
  };
  on_device(arena_.device(), [&](auto& context) {
    for (std::size_t b = 0; b < buckets; ++b) {
      const auto& part = arena_.parts()[static_cast<std::size_t>(layout_.buckets()[b].part)];
      const auto at = static_cast<std::int64_t>(b);
      kernels::sum_squares(context, slice(part.gradients, layout_.shard(static_cast<int>(b), rank)),
                           slice(squares_of(rank), {at, at + 1}));
    }
  });
  for (int i = 0; i < arena_.size(); ++i) flags_of(rank)[i] = arena_.has_gradient(i);
  row_of(rank) = {agreement_ ? agreement_->take() : StopVote{}, number_};
  rows_->upload(count * static_cast<std::int64_t>(sizeof(double)));
  rows_->run();

  check_numbers();
  if (agreement_) {
    const auto vote_of = [&](int other) -> const StopVote& { return row_of(other).vote; };
    if (agreement_->settle(comm_.world_size(), vote_of).stops()) return;
  }
  take_flags();
  for (int other = 0; other < comm_.world_size(); ++other)
    slice(squares_, {other * count, (other + 1) * count}).copy_bytes_from(squares_of(other));
  with_step(step, [&](auto& context) { kernels::measure_squares(context, squares_, limits); });
}

void GradientSync::check_numbers() const {
  for (int other = 0; other < comm_.world_size(); ++other) {
    ATH_CHECK(row_of(other).number == row_of(0).number,
              "{}: all ranks must update the same optimizers in the same order, but rank {} updates number "
              "{} while rank 0 updates number {}",
              name_, other, row_of(other).number + 1, row_of(0).number + 1);
  }
}

// A parameter with a gradient on any rank has one on all ranks: the others contributed zeros.
void GradientSync::take_flags() {
  const int rank = comm_.rank();
  for (int i = 0; i < arena_.size(); ++i) {
    if (flags_of(rank)[i]) continue;
    for (int other = 0; other < comm_.world_size(); ++other) {
      if (!flags_of(other)[i]) continue;
      const Parameter& parameter = arena_.parameters()[static_cast<std::size_t>(i)];
      ATH_CHECK(parameter.tensor.requires_grad(),
                "{}: {} must require a gradient on all ranks, but only does on rank {}", name_,
                parameter.name, other);
      leaf_of(parameter.tensor).direct();  // counts as a contribution
      break;
    }
  }
}

GradientSync::AgreementRow& GradientSync::row_of(int rank) const {
  return *reinterpret_cast<AgreementRow*>(rows_->row(rank) + layout_.buckets().size() * sizeof(double));
}

char* GradientSync::flags_of(int rank) const {
  return reinterpret_cast<char*>(&row_of(rank) + 1);
}

std::vector<std::string> GradientSync::unused(int rank) const {
  std::vector<std::string> names;
  for (int i = 0; i < arena_.size(); ++i) {
    const Parameter& parameter = arena_.parameters()[static_cast<std::size_t>(i)];
    if (!flags_of(rank)[i] && parameter.tensor.requires_grad()) names.push_back(parameter.name);
  }
  return names;
}

}  // namespace athanor::dist
