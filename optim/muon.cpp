#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/muon.h"
#include "kernels/on_device.h"
#include "kernels/update_ops.h"
#include "optim/newton_schulz.h"
#include "optim/step.h"

namespace athanor {
namespace {

float shape_scale(MuonScale scale, std::int64_t m, std::int64_t n) {
  const auto rows = static_cast<double>(m), columns = static_cast<double>(n);
  switch (scale) {
    case MuonScale::none: return 1;
    case MuonScale::original: return static_cast<float>(std::sqrt(std::max(1.0, rows / columns)));
    case MuonScale::rms: return static_cast<float>(0.2 * std::sqrt(std::max(rows, columns)));
  }
  return 1;
}

/// An optimizer for all parameters except matrices, with the learning-rate slot after Muon's.
template <class Rest, class Options>
std::unique_ptr<Optimizer> all_but_matrices(ParameterArena& arena, const Options& options, float lr_scale) {
  using Group = typename Rest::Group;
  return std::make_unique<Rest>(
      arena,
      std::vector{
          Group{{.parameters = selectors::none_of(selectors::matrices()), .lr_scale = lr_scale}, options}},
      1);
}

}  // namespace

/// Matrices that can share a batch.
struct Muon::MatrixGroup {
  int part = 0;
  std::int64_t rows = 0, columns = 0;
  MuonOptions options;
  std::int64_t most = 1;  // matrices in a batch
  std::vector<int> members;

  std::int64_t side() const { return std::min(rows, columns); }
  /// Of a step.
  double flops() const {
    const auto n = static_cast<double>(side()), m = static_cast<double>(std::max(rows, columns));
    return static_cast<double>(members.size()) * options.iterations * (4 * n * n * m + 2 * n * n * n);
  }
};

/// Groups that run one after the other, on a stream of their own.
struct Muon::Lane {
  explicit Lane(Device device) : stream(Stream::create(device)), done(device) {}
  Stream stream;
  Event done;
  std::vector<MatrixGroup> groups;
  double flops = 0;
  NewtonSchulz f32, bf16;  // allocated if a group iterates in that dtype

  NewtonSchulz workspace_of(DType dtype, Device device) const;
};

// Construction ---------------------------------------------------------------------------------------------

Muon::Muon(ParameterArena& arena, const std::vector<Group>& groups, int first_slot,
           std::unique_ptr<Optimizer> rest)
    : Optimizer("muon", arena, {groups.begin(), groups.end()}, first_slot, decay_of(groups), std::move(rest)),
      options_(static_cast<std::size_t>(first_slot)),
      momentum_(add_state("momentum")),
      ready_(arena.device()) {
  for (const Group& group : groups) {
    const MuonOptions& o = group.options;
    ATH_CHECK(o.momentum >= 0 && o.momentum < 1, "muon: momentum must be in [0, 1), but got {}", o.momentum);
    ATH_CHECK(o.weight_decay >= 0, "muon: weight_decay must be >= 0, but got {}", o.weight_decay);
    ATH_CHECK(o.iterations >= 1 && o.iterations < 100, "muon: iterations must be in [1, 99], but got {}",
              o.iterations);
    ATH_CHECK(o.eps >= 0, "muon: eps must be >= 0, but got {}", o.eps);
    ATH_CHECK(o.dtype == DType::f32 || o.dtype == DType::bf16, "muon: dtype must be f32 or bf16, but got {}",
              o.dtype);
    options_.push_back(o);
  }
  check_selection();
  make_lanes(sort_by_shape());
}

Muon::~Muon() = default;

Muon::Muon(ParameterArena& arena, const MuonOptions& options, const AdamWOptions& rest, float rest_lr_scale)
    : Muon(arena, {Group{{.parameters = selectors::matrices()}, options}}, 0,
           all_but_matrices<AdamW>(arena, rest, rest_lr_scale)) {}

Muon::Muon(ParameterArena& arena, const MuonOptions& options, const SgdOptions& rest, float rest_lr_scale)
    : Muon(arena, {Group{{.parameters = selectors::matrices()}, options}}, 0,
           all_but_matrices<Sgd>(arena, rest, rest_lr_scale)) {}

void Muon::check_selection() const {
  std::vector<int> times(static_cast<std::size_t>(arena().size()));
  for (const UpdatePlan::Member& member : plan().members()) {
    const auto index = static_cast<std::size_t>(member.parameter);
    const Parameter& parameter = arena().parameters()[index];
    ATH_CHECK(parameter.tensor.rank() >= 2, "muon: {} must be a matrix (rank 2 or more), but has shape {}",
              parameter.name, parameter.tensor.shape());
    ++times[index];
  }
  if (rest()) {
    ATH_CHECK(&rest()->arena() == &arena(), "muon: the optimizer for the rest must work on the same arena");
    for (int i : rest()->selected()) ++times[static_cast<std::size_t>(i)];
    ATH_CHECK(rest()->first_slot() >= first_slot() + group_count() ||
                  first_slot() >= rest()->first_slot() + rest()->group_count(),
              "muon: the optimizer for the rest must have its own learning rates, but reads them from index "
              "{} on, and Muon from {} on",
              rest()->first_slot(), first_slot());
  }
  for (std::size_t i = 0; i < times.size(); ++i) {
    ATH_CHECK(times[i] == 1,
              "muon: every parameter must be selected once, here or for the rest, but {} is {}",
              arena().parameters()[i].name, times[i] == 0 ? "not" : "twice");
  }
}

// A convolution's [K, R, S, C] counts as a matrix [K, R S C].
std::vector<Muon::MatrixGroup> Muon::sort_by_shape() {
  std::vector<MatrixGroup> groups;
  for (std::size_t i = 0; i < plan().members().size(); ++i) {
    const UpdatePlan::Member& member = plan().members()[i];
    const Tensor& weight = arena().parameters()[static_cast<std::size_t>(member.parameter)].tensor;
    if (weight.numel() == 0) continue;
    const int part = arena().slice(member.parameter).part;
    const std::int64_t rows = weight.dim(0), columns = weight.numel() / rows;
    const MuonOptions& options = options_[static_cast<std::size_t>(member.group)];
    const std::int64_t here = arena().shards().elements(member.parameter);
    if (here == 0) {
      elsewhere_.push_back(static_cast<int>(i));
      continue;
    }
    ATH_CHECK(
        here == weight.numel(),
        "muon: {} must lie entirely on one rank, but this rank holds {} of its {} elements; shard the "
        "arena with BucketOptions::whole_parameters; in a Trainer, set OptimizerSpec::whole_parameters or "
        "TrainerConfig::buckets.whole_parameters",
        arena().parameters()[static_cast<std::size_t>(member.parameter)].name, here, weight.numel());
    auto at = std::find_if(groups.begin(), groups.end(), [&](const MatrixGroup& known) {
      return known.part == part && known.rows == rows && known.columns == columns && known.options == options;
    });
    if (at == groups.end()) {
      const std::int64_t bytes = weight.numel() * static_cast<std::int64_t>(size_of(options.dtype));
      const Device device = device_of_kernels(arena().device());
      const std::int64_t most = std::max<std::int64_t>(1, batch_bytes(device) / bytes);
      at = groups.insert(at, {part, rows, columns, options, most, {}});
    }
    at->members.push_back(static_cast<int>(i));
  }
  std::vector<int> order;
  for (const MatrixGroup& group : groups)
    order.insert(order.end(), group.members.begin(), group.members.end());
  order.insert(order.end(), elsewhere_.begin(), elsewhere_.end());
  plan().arrange(std::move(order));
  return groups;
}

// The longest groups first, each to the lane that has least to do.
void Muon::make_lanes(std::vector<MatrixGroup> groups) {
  const AllocTag named("optimizer");
  const Device device = arena().device();
  const std::size_t count = device.is_cpu() ? 1 : std::min(kMaxLanes, groups.size());
  for (std::size_t i = 0; i < count; ++i) lanes_.emplace_back(device);
  std::stable_sort(groups.begin(), groups.end(),
                   [](const MatrixGroup& a, const MatrixGroup& b) { return a.flops() > b.flops(); });
  for (MatrixGroup& group : groups) {
    Lane& least = *std::min_element(lanes_.begin(), lanes_.end(),
                                    [](const Lane& a, const Lane& b) { return a.flops < b.flops; });
    least.flops += group.flops();
    least.groups.push_back(std::move(group));
  }
  for (Lane& lane : lanes_) {
    lane.f32 = lane.workspace_of(DType::f32, device);
    lane.bf16 = lane.workspace_of(DType::bf16, device);
  }
}

NewtonSchulz Muon::Lane::workspace_of(DType dtype, Device device) const {
  std::int64_t elements = 0, squares = 0;
  for (const MatrixGroup& group : groups) {
    if (group.options.dtype != dtype) continue;
    const auto count = std::min(group.most, static_cast<std::int64_t>(group.members.size()));
    elements = std::max(elements, count * group.rows * group.columns);
    squares = std::max(squares, count * group.side() * group.side());
  }
  return elements == 0 ? NewtonSchulz() : NewtonSchulz(dtype, device, elements, squares);
}

// Step -----------------------------------------------------------------------------------------------------

// `count` active matrices, beginning with that member.
void Muon::step_batch(const Lane& lane, const MatrixGroup& group, int first, std::int64_t count) {
  const MuonOptions& options = group.options;
  const NewtonSchulz& work = options.dtype == DType::f32 ? lane.f32 : lane.bf16;
  const Shape matrices{count, group.rows, group.columns};
  const kernels::UpdateTable table = plan().table_of(first, count);
  on_device(arena().device(), [&](auto& context) {
    kernels::muon_momentum(context, table, options.momentum, options.nesterov, momentum_,
                           work.input(matrices));
    const Tensor direction = work.run(matrices, options);
    const float norm = options.normalize_weights ? std::sqrt(static_cast<float>(group.rows)) : 0.0f;
    kernels::muon_apply(context, table,
                        {options.weight_decay, shape_scale(options.scale, group.rows, group.columns), norm},
                        direction);
  });
}

void Muon::step_lane(const Lane& lane) {
  for (const MatrixGroup& group : lane.groups) {
    int first = 0;
    std::int64_t count = 0;
    for (const int member : group.members) {
      if (!plan().active(member)) continue;
      if (count == 0) first = member;
      if (++count < group.most) continue;
      step_batch(lane, group, first, count);
      count = 0;
    }
    if (count > 0) step_batch(lane, group, first, count);
  }
}

// Lanes, and the rest, update different parameters, and read the gradients and the StepState.
void Muon::step(StepBuffer& step) {
  const Device device = arena().device();
  const Stream here = current_stream(device);
  const bool aside = device.is_cuda() && std::exchange(stepped_, true);
  with_step(step, [&](auto& context) {
    plan().refresh();
    if (aside) ready_.record(here);
    for (Lane& lane : lanes_) {
      if (aside) lane.stream.wait(ready_);
      const StreamGuard guard(aside ? lane.stream : here);
      step_lane(lane);
      if (aside) lane.done.record(lane.stream);
    }
    // Other ranks update these; only the counts, which every update increments, change here.
    constexpr std::array<kernels::SgdGroup, kMaxParamGroups> kNothing{};
    for (const int member : elsewhere_) {
      if (plan().active(member))
        kernels::update_parameters<kernels::SgdRule>(context, plan().table_of(member), kNothing, {});
    }
  });
  if (rest()) rest()->step(step);
  for (const Lane& lane : lanes_) {
    if (aside) here.wait(lane.done);
  }
  stepped();
}

}  // namespace athanor
