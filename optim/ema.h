#pragma once

#include <memory>
#include <utility>

#include "optim/arena.h"
#include "optim/optimizer.h"
#include "optim/plan.h"
#include "optim/step_buffer.h"

namespace athanor {

struct EmaOptions {
  double decay = 0.999;
  /// At the t-th update, decay is min(decay, (1 + t) / (10 + t)): early averages forget initial weights.
  bool warm_up = true;
  int every = 1;  ///< applied steps from one update to the next
};

/// Exponential moving average of the masters and the buffers, for evaluation:
///
///     average += (1 - decay) (value - average)
///
/// after each applied step; a skipped step changes nothing. It starts from the current values. State: one f32
/// per parameter and buffer element. With a sharded arena it covers this rank's masters only, and all ranks
/// gather weights after swap() (Zero1::gather_weights()).
/// Source: Polyak and Juditsky 1992; the warm-up is TensorFlow's ExponentialMovingAverage with num_updates.
class Ema {
 public:
  /// Throws ArgumentError if decay is outside [0, 1).
  explicit Ema(ParameterArena& arena, const EmaOptions& options = {});
  ~Ema();
  Ema(const Ema&) = delete;
  Ema& operator=(const Ema&) = delete;

  /// Lets `optimizer.step()`, if it can (Optimizer::fuses_averages()), update the averages in the pass that
  /// writes the masters: 8 bytes per parameter instead of 12, and no launch. update() then only handles
  /// buffers and parameters that the step did not update. The bits are the same. Ends with the optimizer or
  /// this object. Throws ArgumentError if the optimizer has another arena or already updates averages.
  void fuse_into(Optimizer& optimizer);

  /// Call it after the optimizer's step and before finish_step(). Throws ArgumentError while swapped in, and
  /// if a fused optimizer has updated a parameter several times since the last update: call it after each
  /// step.
  void update(StepBuffer& step);

  /// Exchanges averages with masters and buffers, and refreshes the compute copies: the model then is the
  /// average. A second call undoes it.
  void swap();
  /// The averages under the names of the model: views of live memory. Loading has the arena's checks.
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);
  bool swapped() const { return swapped_; }

 private:
  template <class Context> void average_masters(Context& context);
  void exchange();
  /// Calls f(masters, averages) for all averaged data, flat.
  template <class F> void for_each_owned(const F& f) const;

  ParameterArena& arena_;
  std::shared_ptr<FusedAverages> averages_;  // per part of the arena, of the elements this rank owns
  Tensor buffers_;
  bool swapped_ = false;
  UpdatePlan rest_;  // of the parameters that no step has averaged
};

/// The model is its average until end() or destruction.
class EmaSwap {
 public:
  explicit EmaSwap(Ema& ema) : ema_(&ema) { ema.swap(); }
  ~EmaSwap();
  EmaSwap(const EmaSwap&) = delete;
  EmaSwap& operator=(const EmaSwap&) = delete;

  void end() { std::exchange(ema_, nullptr)->swap(); }

 private:
  Ema* ema_;
};

}  // namespace athanor
