#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/matmul.h"
#include "kernels/muon.h"
#include "kernels/on_device.h"
#include "optim/flat.h"
#include "optim/step.h"

namespace athanor {
namespace {

float shape_scale(MuonScale scale, std::int64_t m, std::int64_t n) {
  const auto rows = static_cast<double>(m), columns = static_cast<double>(n);
  switch (scale) {
    case MuonScale::none: return 1;
    case MuonScale::original: return static_cast<float>(std::sqrt(std::max(1.0, rows / columns)));
    case MuonScale::spectral: return static_cast<float>(std::sqrt(rows / columns));
    case MuonScale::rms: return static_cast<float>(0.2 * std::sqrt(std::max(rows, columns)));
  }
  return 1;
}

Tensor transposed(const Tensor& x) {
  return x.view_as_strided({x.dim(0), x.dim(2), x.dim(1)}, {x.dim(1) * x.dim(2), 1, x.dim(2)}, 0);
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

// Construction ---------------------------------------------------------------------------------------------

Muon::Muon(ParameterArena& arena, const std::vector<Group>& groups, int first_slot,
           std::unique_ptr<Optimizer> rest)
    : Optimizer("muon", arena, {groups.begin(), groups.end()}, first_slot, decay_of(groups)),
      options_(static_cast<std::size_t>(first_slot)),
      rest_(std::move(rest)),
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
  sort_by_shape();
  make_lanes();
}

Muon::Muon(ParameterArena& arena, const MuonOptions& options, const AdamWOptions& rest, float rest_lr_scale)
    : Muon(arena, {Group{{.parameters = selectors::matrices()}, options}}, 0,
           all_but_matrices<AdamW>(arena, rest, rest_lr_scale)) {}

Muon::Muon(ParameterArena& arena, const MuonOptions& options, const SgdOptions& rest, float rest_lr_scale)
    : Muon(arena, {Group{{.parameters = selectors::matrices()}, options}}, 0,
           all_but_matrices<Sgd>(arena, rest, rest_lr_scale)) {}

void Muon::check_selection() const {
  std::vector<int> times(static_cast<std::size_t>(arena().size()));
  for (int i : Optimizer::selected()) {
    const Parameter& parameter = arena().parameters()[static_cast<std::size_t>(i)];
    ATH_CHECK(parameter.tensor.rank() >= 2, "muon: {} must be a matrix (rank 2 or more), but has shape {}",
              parameter.name, parameter.tensor.shape());
    ++times[static_cast<std::size_t>(i)];
  }
  if (rest_) {
    ATH_CHECK(&rest_->arena() == &arena(), "muon: the optimizer for the rest must work on the same arena");
    for (int i : rest_->selected()) ++times[static_cast<std::size_t>(i)];
    ATH_CHECK(rest_->first_slot() >= first_slot() + group_count() ||
                  first_slot() >= rest_->first_slot() + rest_->group_count(),
              "muon: the optimizer for the rest must have its own learning rates, but reads them from index "
              "{} on, and Muon from {} on",
              rest_->first_slot(), first_slot());
  }
  for (std::size_t i = 0; i < times.size(); ++i) {
    ATH_CHECK(times[i] == 1,
              "muon: every parameter must be selected once, here or for the rest, but {} is {}",
              arena().parameters()[i].name, times[i] == 0 ? "not" : "twice");
  }
}

// A convolution's [K, R, S, C] counts as a matrix [K, R S C].
void Muon::sort_by_shape() {
  for (std::size_t i = 0; i < plan().members().size(); ++i) {
    const UpdatePlan::Member& member = plan().members()[i];
    const Tensor& weight = arena().parameters()[static_cast<std::size_t>(member.parameter)].tensor;
    if (weight.numel() == 0) continue;
    const int part = arena().slice(member.parameter).part;
    const std::int64_t rows = weight.dim(0), columns = weight.numel() / rows;
    const MuonOptions& options = options_[static_cast<std::size_t>(member.group)];
    const std::int64_t here = arena().owned_elements(member.parameter);
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
    auto at = std::find_if(groups_.begin(), groups_.end(), [&](const MatrixGroup& known) {
      return known.part == part && known.rows == rows && known.columns == columns && known.options == options;
    });
    if (at == groups_.end()) {
      const std::int64_t bytes = weight.numel() * static_cast<std::int64_t>(size_of(options.dtype));
      // In an account, as many as on the GPU that it is for.
      const Device device = detail::account ? Device{DeviceType::cuda} : arena().device();
      const std::int64_t most = std::max<std::int64_t>(1, batch_bytes(device) / bytes);
      at = groups_.insert(at, {part, rows, columns, options, most, {}});
    }
    at->members.push_back(static_cast<int>(i));
  }
  std::vector<int> order;
  for (const MatrixGroup& group : groups_)
    order.insert(order.end(), group.members.begin(), group.members.end());
  order.insert(order.end(), elsewhere_.begin(), elsewhere_.end());
  plan().arrange(std::move(order));
}

double Muon::MatrixGroup::flops() const {
  const auto n = static_cast<double>(side()), m = static_cast<double>(std::max(rows, columns));
  return static_cast<double>(members.size()) * options.iterations * (4 * n * n * m + 2 * n * n * n);
}

// The longest groups first, each to the lane that has least to do.
void Muon::make_lanes() {
  const AllocTag named("optimizer");
  const Device device = arena().device();
  const std::size_t count = device.is_cpu() ? 1 : std::min(kMaxLanes, groups_.size());
  for (std::size_t i = 0; i < count; ++i) lanes_.emplace_back(device);
  std::vector<std::size_t> order(groups_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return groups_[a].flops() > groups_[b].flops(); });
  for (const std::size_t group : order) {
    Lane& least = *std::min_element(lanes_.begin(), lanes_.end(),
                                    [](const Lane& a, const Lane& b) { return a.flops < b.flops; });
    least.groups.push_back(group);
    least.flops += groups_[group].flops();
  }
  for (Lane& lane : lanes_) {
    lane.f32 = workspace_of(lane, DType::f32);
    lane.bf16 = workspace_of(lane, DType::bf16);
  }
}

Muon::Workspace Muon::workspace_of(const Lane& lane, DType dtype) const {
  std::int64_t largest = 0, square = 0;
  for (const std::size_t i : lane.groups) {
    const MatrixGroup& group = groups_[i];
    if (group.options.dtype != dtype) continue;
    const auto count = std::min(group.most, static_cast<std::int64_t>(group.members.size()));
    largest = std::max(largest, count * group.rows * group.columns);
    square = std::max(square, count * group.side() * group.side());
  }
  if (largest == 0) return {};
  const auto make = [&](std::int64_t size) { return make_flat(size, dtype, arena().device()); };
  return {make(largest), make(largest), make(square), make(square), make(square)};
}

// Step -----------------------------------------------------------------------------------------------------

// X -> a X + (b A + c A^2) X = (a I + A (b I + c A)) X with A = X X^T; transposed for a tall X, so that A has
// the shorter side.
template <class Context>
Tensor Muon::orthogonalize(Context& context, const Workspace& work, const MatrixGroup& group,
                           std::int64_t count) const {
  const auto multiply = [&](const Tensor& left, const Tensor& right, const Tensor& product) {
    kernels::matmul(context, MatmulImpl::automatic, left, right, {}, Activation::none, product,
                    Write::overwrite);
  };
  const bool tall = group.rows > group.columns;
  const auto [a, b, c] = group.options.coefficients;
  const Shape matrices{count, group.rows, group.columns}, squares{count, group.side(), group.side()};
  const Tensor gram = slice_of(work.gram, 0, squares), factor = slice_of(work.factor, 0, squares),
               product = slice_of(work.product, 0, squares);
  Tensor x = slice_of(work.x, 0, matrices), next = slice_of(work.next, 0, matrices);
  kernels::normalize(context, x, group.options.eps);
  for (int i = 0; i < group.options.iterations; ++i) {
    const Tensor mirror = transposed(x);
    multiply(tall ? mirror : x, tall ? x : mirror, gram);
    kernels::scale_add_identity(context, gram, c, b, factor);
    multiply(gram, factor, product);
    kernels::scale_add_identity(context, product, 1, a, product);
    multiply(tall ? x : product, tall ? product : x, next);
    std::swap(x, next);
  }
  return x;
}

// `count` active matrices, beginning with that member.
template <class Context>
void Muon::step_batch(Context& context, const Workspace& work, const MatrixGroup& group, int first,
                      std::int64_t count) {
  const MuonOptions& options = group.options;
  const kernels::UpdateTable table = plan().table_of(first, count);
  kernels::muon_momentum(context, table, options.momentum, options.nesterov, momentum_,
                         slice_of(work.x, 0, {count, group.rows, group.columns}));
  const Tensor direction = orthogonalize(context, work, group, count);
  const float norm = options.normalize_weights ? std::sqrt(static_cast<float>(group.rows)) : 0.0f;
  kernels::muon_apply(context, table,
                      {options.weight_decay, shape_scale(options.scale, group.rows, group.columns), norm},
                      direction);
}

template <class Context> void Muon::step_lane(Context& context, const Lane& lane) {
  for (const std::size_t i : lane.groups) {
    const MatrixGroup& group = groups_[i];
    const Workspace& work = lane.workspace(group.options.dtype);
    int first = 0;
    std::int64_t count = 0;
    for (const int member : group.members) {
      if (!plan().active(member)) continue;
      if (count == 0) first = member;
      if (++count < group.most) continue;
      step_batch(context, work, group, first, count);
      count = 0;
    }
    if (count > 0) step_batch(context, work, group, first, count);
  }
}

// Lanes, and the rest, update different parameters, and read the gradients and the StepState.
void Muon::step(StepBuffer& step) {
  const Device device = arena().device();
  const Stream here = current_stream(device);
  const bool aside = device.is_cuda() && std::exchange(stepped_, true);
  on_device(device, [&](auto& context) {
    const BoundStep bound(context, step);
    plan().refresh();
    if (aside) ready_.record(here);
    for (Lane& lane : lanes_) {
      if (aside) lane.stream.wait(ready_);
      const StreamGuard guard(aside ? lane.stream : here);
      step_lane(context, lane);
      if (aside) lane.done.record(lane.stream);
    }
    // Other ranks update these; only the counts, which every update increments, change here.
    constexpr std::array<kernels::SgdGroup, kMaxParamGroups> kNothing{};
    for (const int member : elsewhere_) {
      if (plan().active(member)) kernels::sgd_update(context, plan().table_of(member), kNothing, Tensor());
    }
  });
  if (rest_) rest_->step(step);
  for (const Lane& lane : lanes_) {
    if (aside) here.wait(lane.done);
  }
  stepped();
}

// The rest along -------------------------------------------------------------------------------------------

void Muon::set_learning_rates(StepBuffer& step, const Schedule& schedule) const {
  Optimizer::set_learning_rates(step, schedule);
  if (!rest_) return;
  rest_->set_rate_scale(rate_scale());
  rest_->set_learning_rates(step, schedule);
}

std::vector<int> Muon::selected() const {
  std::vector<int> all = Optimizer::selected();
  if (rest_) {
    const std::vector<int> rest = rest_->selected();
    all.insert(all.end(), rest.begin(), rest.end());
    std::sort(all.begin(), all.end());
  }
  return all;
}

StateDict Muon::state_dict() const {
  StateDict state = Optimizer::state_dict();
  if (rest_) state.set_all("rest.", rest_->state_dict());
  return state;
}

void Muon::check_state_dict(const StateDict& state) const {
  if (rest_) rest_->check_state_dict(state.under("rest."));
  Optimizer::check_state_dict(state);
}

void Muon::load_state_dict(const StateDict& state) {
  check_state_dict(state);
  if (rest_) rest_->load_state_dict(state.under("rest."));
  Optimizer::load_state_dict(state);
}

void Muon::fuse_averages(std::span<const Tensor> averages, const kernels::AverageRule& rule) {
  Optimizer::fuse_averages(averages, rule);
  if (rest_) rest_->fuse_averages(averages, rule);
}

void Muon::mark_updated(std::span<char> updated) const {
  Optimizer::mark_updated(updated);
  if (rest_) rest_->mark_updated(updated);
}

}  // namespace athanor
