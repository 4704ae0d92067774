#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/matmul.h"
#include "optim/flat.h"
#include "optim/step.h"

namespace athanor {
namespace {

using MatrixSize = Muon::MatrixSize;

// [K, R, S, C] as [K, R S C].
MatrixSize matrix_size(const Tensor& weight) {
  const std::int64_t rows = weight.dim(0);
  return {rows, rows == 0 ? 0 : weight.numel() / rows};
}

float rate_scale(MuonScale scale, const MatrixSize& size) {
  const auto rows = static_cast<double>(size.rows), columns = static_cast<double>(size.columns);
  switch (scale) {
    case MuonScale::none: return 1;
    case MuonScale::original: return static_cast<float>(std::sqrt(std::max(1.0, rows / columns)));
    case MuonScale::spectral: return static_cast<float>(std::sqrt(rows / columns));
    case MuonScale::rms: return static_cast<float>(0.2 * std::sqrt(std::max(rows, columns)));
  }
  return 1;
}

Tensor transposed(const Tensor& x) {
  return x.view_as_strided({x.dim(1), x.dim(0)}, {1, x.dim(1)}, 0);
}

}  // namespace

// Construction ---------------------------------------------------------------------------------------------

Muon::Muon(ParameterArena& arena, const std::vector<Group>& groups, int first_slot,
           std::unique_ptr<Optimizer> rest)
    : Optimizer("muon", arena, {groups.begin(), groups.end()}, first_slot),
      options_(static_cast<std::size_t>(first_slot)),
      rest_(std::move(rest)),
      momentum_(add_state("momentum")) {
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
  make_workspace();
}

Muon::Muon(ParameterArena& arena, const MuonOptions& options, const AdamWOptions& rest, float rest_lr_scale)
    : Muon(arena, {Group{{.parameters = selectors::matrices()}, options}}, 0,
           std::make_unique<AdamW>(
               arena,
               std::vector<AdamW::Group>{
                   {{.parameters = selectors::none_of(selectors::matrices()), .lr_scale = rest_lr_scale},
                    rest}},
               1)) {}

Muon::Muon(ParameterArena& arena, const MuonOptions& options, const SgdOptions& rest, float rest_lr_scale)
    : Muon(arena, {Group{{.parameters = selectors::matrices()}, options}}, 0,
           std::make_unique<Sgd>(
               arena,
               std::vector<Sgd::Group>{
                   {{.parameters = selectors::none_of(selectors::matrices()), .lr_scale = rest_lr_scale},
                    rest}},
               1)) {}

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
              "muon: the optimizer for the rest must have learning rates of its own, but takes them from "
              "place {} on, and Muon from {} on",
              rest_->first_slot(), first_slot());
  }
  for (std::size_t i = 0; i < times.size(); ++i) {
    ATH_CHECK(times[i] == 1,
              "muon: every parameter must be selected once, here or for the rest, but {} is {}",
              arena().parameters()[i].name, times[i] == 0 ? "not" : "twice");
  }
}

void Muon::make_workspace() {
  std::int64_t largest = 0, side = 0;
  bool f32 = false, bf16 = false;
  for (const UpdatePlan::Member& member : plan().members()) {
    const MatrixSize size =
        matrix_size(arena().parameters()[static_cast<std::size_t>(member.parameter)].tensor);
    largest = std::max(largest, size.rows * size.columns);
    side = std::max(side, std::min(size.rows, size.columns));
    (options_[static_cast<std::size_t>(member.group)].dtype == DType::f32 ? f32 : bf16) = true;
  }
  const AllocTag named("optimizer");
  const auto make = [&](DType dtype) {
    return Workspace{make_flat(largest, dtype, arena().device()), make_flat(largest, dtype, arena().device()),
                     make_flat(side * side, dtype, arena().device()),
                     make_flat(side * side, dtype, arena().device()),
                     make_flat(side * side, dtype, arena().device())};
  };
  if (f32) f32_ = make(DType::f32);
  if (bf16) bf16_ = make(DType::bf16);
}

// Step -----------------------------------------------------------------------------------------------------

// X -> a X + (b A + c A^2) X = (a I + A (b I + c A)) X with A = X X^T; for a tall X the mirror image, so that
// A has the shorter side.
template <class Context>
Tensor Muon::orthogonalize(Context& context, const MuonOptions& options, const MatrixSize& size,
                           const Workspace& work) const {
  const auto multiply = [&](const Tensor& left, const Tensor& right, const Tensor& product) {
    kernels::matmul(context, MatmulImpl::automatic, left, right, {}, Activation::none, product,
                    Write::overwrite);
  };
  const std::int64_t side = std::min(size.rows, size.columns);
  const bool tall = size.rows > size.columns;
  const auto [a, b, c] = options.coefficients;
  const Tensor gram = slice_of(work.gram, 0, {side, side}), factor = slice_of(work.factor, 0, {side, side}),
               product = slice_of(work.product, 0, {side, side});
  Tensor x = slice_of(work.x, 0, {size.rows, size.columns}), next = slice_of(work.next, 0, x.shape());
  kernels::normalize(context, x, options.eps);
  for (int i = 0; i < options.iterations; ++i) {
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

void Muon::step(StepBuffer& step) {
  on_device(arena().device(), [&](auto& context) {
    const BoundStep bound(context, step);
    plan().refresh();
    for (std::size_t i = 0; i < plan().members().size(); ++i) {
      const UpdatePlan::Member& member = plan().members()[i];
      const Tensor& weight = arena().parameters()[static_cast<std::size_t>(member.parameter)].tensor;
      if (!plan().active(static_cast<int>(i)) || weight.numel() == 0) continue;
      const MuonOptions& options = options_[static_cast<std::size_t>(member.group)];
      const Workspace& work = options.dtype == DType::f32 ? f32_ : bf16_;
      const MatrixSize size = matrix_size(weight);
      const kernels::UpdateTable table = plan().table_of(static_cast<int>(i));
      kernels::muon_momentum(context, table, options.momentum, options.nesterov, momentum_,
                             slice_of(work.x, 0, {size.rows, size.columns}));
      const Tensor direction = orthogonalize(context, options, size, work);
      const float norm = options.normalize_weights ? std::sqrt(static_cast<float>(size.rows)) : 0.0f;
      kernels::muon_apply(context, table, {options.weight_decay, rate_scale(options.scale, size), norm},
                          direction);
    }
  });
  arena().bump_weights();
  if (rest_) rest_->step(step);
}

// The rest along
// ---------------------------------------------------------------------------------------------

void Muon::set_learning_rates(StepBuffer& step, const Schedule& schedule) const {
  Optimizer::set_learning_rates(step, schedule);
  if (rest_) rest_->set_learning_rates(step, schedule);
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

void Muon::load_state_dict(const StateDict& state) {
  if (rest_) rest_->load_state_dict(state.under("rest."));
  Optimizer::load_state_dict(state);
}

}  // namespace athanor
