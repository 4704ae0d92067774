#include "optim/ema.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "kernels/on_device.h"
#include "kernels/update.h"
#include "optim/flat.h"
#include "optim/load.h"
#include "optim/step.h"

namespace athanor {

Ema::Ema(ParameterArena& arena, const EmaOptions& options)
    : arena_(arena), options_(options), left_(static_cast<std::size_t>(arena.size())), rest_(arena) {
  ATH_CHECK(options.decay >= 0 && options.decay < 1, "ema: decay must be in [0, 1), but got {}",
            options.decay);
  const AllocTag named("ema");
  for (std::size_t part = 0; part < arena.parts().size(); ++part)
    averages_.push_back(make_flat(arena.kept(static_cast<int>(part)), DType::f32, arena.device()));
  for_each_kept([](const Tensor& masters, const Tensor& averages) { averages.copy_bytes_from(masters); });
  if (arena.flat_buffers().defined()) {
    buffers_ = make_flat(arena.flat_buffers().numel(), DType::f32, arena.device());
    buffers_.copy_bytes_from(arena.flat_buffers());
  }
  rest_.set_averages(averages_, rule());
}

Ema::~Ema() {
  if (const auto optimizer = optimizer_.lock()) optimizer->fuse_averages({}, {});
}

template <class F> void Ema::for_each_kept(const F& f) const {
  for (const ParameterArena::Owned& range : arena_.owned()) {
    const auto part = static_cast<std::size_t>(range.part);
    const Shape shape{range.count()};
    f(slice_of(arena_.parts()[part].masters, range.masters, shape),
      slice_of(averages_[part], range.kept, shape));
  }
}

void Ema::fuse_into(Optimizer& optimizer) {
  ATH_CHECK(&optimizer.arena() == &arena_, "ema: the optimizer must work on the averaged arena");
  ATH_CHECK(optimizer_.expired(), "ema: averages must be fused into only one optimizer, but already are");
  if (!optimizer.fuses_averages()) return;
  optimizer.fuse_averages(averages_, rule());
  optimizer_ = optimizer.watch();
  calls_ = optimizer.calls();
}

void Ema::update(StepBuffer& step) {
  ATH_CHECK(!swapped_, "ema: averages must not be swapped in during training");
  on_device(arena_.device(), [&](auto& context) {
    const BoundStep bound(context, step);
    average_masters(context);
    if (buffers_.defined()) kernels::average_update(context, arena_.flat_buffers(), buffers_, rule());
  });
}

// Averages the masters that no update has averaged in this step.
template <class Context> void Ema::average_masters(Context& context) {
  const auto optimizer = optimizer_.lock();
  const std::int64_t steps = optimizer ? optimizer->calls() - std::exchange(calls_, optimizer->calls()) : 0;
  ATH_CHECK(
      steps <= 1,
      "ema: update() must follow every step of the optimizer, but there were {} steps since the last one",
      steps);
  if (steps == 0) {
    return for_each_kept([&](const Tensor& masters, const Tensor& averages) {
      kernels::average_update(context, masters, averages, rule());
    });
  }
  std::fill(left_.begin(), left_.end(), char{0});
  optimizer->mark_updated(left_);
  for (char& left : left_) left = left == 0;
  for (const kernels::UpdateTable& table : rest_.refresh(left_)) kernels::average_ranges(context, table);
}

void Ema::swap() {
  exchange();
  arena_.weights_from_masters();
}

void Ema::exchange() {
  on_device(arena_.device(), [&](auto& context) {
    for_each_kept([&](const Tensor& masters, const Tensor& averages) {
      kernels::exchange(context, masters, averages);
    });
    if (buffers_.defined()) kernels::exchange(context, arena_.flat_buffers(), buffers_);
  });
  arena_.bump_buffers();
  swapped_ = !swapped_;
}

EmaSwap::~EmaSwap() {
  try {
    if (ema_) ema_->swap();
  } catch (const std::exception&) {
    // A failed device reports its error at its next use.
  }
}

StateDict Ema::state_dict() const {
  ATH_CHECK(!swapped_, "ema: averages must not be swapped in while they are saved");
  StateDict state;
  for (int i = 0; i < arena_.size(); ++i) {
    const Parameter& parameter = arena_.parameters()[static_cast<std::size_t>(i)];
    const Tensor& averages = averages_[static_cast<std::size_t>(arena_.slice(i).part)];
    state.set(parameter.name,
              arena_.state_of(i, averages, [](const ParameterArena::Run& run) { return run.kept; }));
  }
  for (const NamedTensor& buffer : arena_.buffers()) {
    const std::int64_t begin = buffer.tensor.offset() - arena_.flat_buffers().offset();
    state.set(buffer.name, slice_of(buffers_, begin, buffer.tensor.shape()));
  }
  return state;
}

void Ema::load_state_dict(const StateDict& state) {
  ATH_CHECK(!swapped_, "ema: averages must not be swapped in while they are loaded");
  load_tensors(state_dict(), state, "ema");
}

}  // namespace athanor
