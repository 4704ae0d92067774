#include "optim/ema.h"

#include <algorithm>
#include <exception>

#include "kernels/on_device.h"
#include "kernels/update.h"
#include "optim/flat.h"
#include "optim/load.h"
#include "optim/step.h"

namespace athanor {

Ema::Ema(ParameterArena& arena, const EmaOptions& options)
    : arena_(arena), averages_(std::make_shared<FusedAverages>()), rest_(arena) {
  ATH_CHECK(options.decay >= 0 && options.decay < 1, "ema: decay must be in [0, 1), but got {}",
            options.decay);
  ATH_CHECK(options.every >= 1, "ema: there must be at least 1 step from one update to the next, but got {}",
            options.every);
  const AllocTag named("ema");
  averages_->rule = {options.decay, options.warm_up, options.every};
  averages_->moved.resize(static_cast<std::size_t>(arena.size()));
  for (std::size_t part = 0; part < arena.parts().size(); ++part)
    averages_->values.push_back(
        make_flat(arena.shards().size(static_cast<int>(part)), DType::f32, arena.device()));
  for_each_owned([](const Tensor& masters, const Tensor& averages) { averages.copy_bytes_from(masters); });
  if (arena.buffers().flat().defined()) {
    buffers_ = make_flat(arena.buffers().flat().numel(), DType::f32, arena.device());
    buffers_.copy_bytes_from(arena.buffers().flat());
  }
}

Ema::~Ema() {
  averages_->values.clear();
}

template <class F> void Ema::for_each_owned(const F& f) const {
  for (const Shards::Owned& range : arena_.shards().owned()) {
    const auto part = static_cast<std::size_t>(range.part);
    const Shape shape{range.count()};
    f(slice_of(arena_.parts()[part].masters, range.masters, shape),
      slice_of(averages_->values[part], range.local, shape));
  }
}

void Ema::fuse_into(Optimizer& optimizer) {
  ATH_CHECK(&optimizer.arena() == &arena_, "ema: the optimizer must work on the averaged arena");
  ATH_CHECK(averages_.use_count() == 1,
            "ema: averages must be fused into only one optimizer, but already are");
  if (optimizer.fuses_averages()) optimizer.fuse_averages(averages_);
}

void Ema::update(StepBuffer& step) {
  ATH_CHECK(!swapped_, "ema: averages must not be swapped in during training");
  with_step(step, [&](auto& context) {
    average_masters(context);
    if (buffers_.defined())
      kernels::average_update(context, arena_.buffers().flat(), buffers_, averages_->rule);
  });
}

// Moves the averages that no update has moved in this step.
template <class Context> void Ema::average_masters(Context& context) {
  std::vector<int>& moved = averages_->moved;
  const int steps = moved.empty() ? 0 : *std::max_element(moved.begin(), moved.end());
  if (steps > 1) {
    std::fill(moved.begin(), moved.end(), 0);
    detail::fail<>(
        "ema: update() must follow every step of the optimizer, but there were {} steps since the last one",
        steps);
  }
  if (steps == 0) {
    return for_each_owned([&](const Tensor& masters, const Tensor& averages) {
      kernels::average_update(context, masters, averages, averages_->rule);
    });
  }
  for (const kernels::UpdateTable& table : rest_.refresh_unmoved(*averages_))
    kernels::average_ranges(context, table);
  std::fill(moved.begin(), moved.end(), 0);
}

void Ema::swap() {
  exchange();
  arena_.weights_from_masters();
}

void Ema::exchange() {
  on_device(arena_.device(), [&](auto& context) {
    for_each_owned([&](const Tensor& masters, const Tensor& averages) {
      kernels::exchange(context, masters, averages);
    });
    if (buffers_.defined()) kernels::exchange(context, arena_.buffers().flat(), buffers_);
  });
  arena_.buffers().bump();
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
    const Tensor& averages = averages_->values[static_cast<std::size_t>(arena_.slice(i).part)];
    state.set(parameter.name,
              arena_.shards().state_of(i, averages, [](const Shards::Run& run) { return run.local; }));
  }
  for (const NamedTensor& buffer : arena_.layout().buffers) {
    const std::int64_t begin = buffer.tensor.offset() - arena_.buffers().flat().offset();
    state.set(buffer.name, slice_of(buffers_, begin, buffer.tensor.shape()));
  }
  return state;
}

void Ema::load_state_dict(const StateDict& state) {
  ATH_CHECK(!swapped_, "ema: averages must not be swapped in while they are loaded");
  load_tensors(state_dict(), state, "ema");
}

}  // namespace athanor
