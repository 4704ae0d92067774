#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "optim/arena.h"
#include "optim/optimizer.h"
#include "optim/plan.h"
#include "optim/step_buffer.h"

namespace athanor {

struct EmaOptions {
  double decay = 0.999;
  /// Decay min(decay, (1 + t) / (10 + t)) at the t-th update: early averages forget the initial weights.
  bool warm_up = true;
};

/// Exponential moving average of the masters and the buffers, for evaluation:
///
///     average += (1 - decay) (value - average)
///
/// after each applied step; a skipped step leaves it alone. Starts from the present values.
/// State: one f32 per parameter and buffer element; where the arena is sharded, of this rank's parameters
/// alone, and after swap() all ranks gather weights (Zero1::gather_weights()).
/// Source: Polyak and Juditsky 1992; the warm-up is TensorFlow's ExponentialMovingAverage with num_updates.
class Ema {
 public:
  /// Throws ArgumentError where decay is outside [0, 1).
  explicit Ema(ParameterArena& arena, const EmaOptions& options = {});
  ~Ema();
  Ema(const Ema&) = delete;
  Ema& operator=(const Ema&) = delete;

  /// Has `optimizer.step()` move the averages of the masters it updates, in the pass that writes them: 8
  /// bytes per parameter instead of 12, and no launch. update() is then left with buffers and with parameters
  /// the step did not update. The bits are the same. Ends with the optimizer, or with this. Throws
  /// ArgumentError where the optimizer works on another arena, or has averages to move already.
  void fuse_into(Optimizer& optimizer);

  /// After the optimizer's step and before finish_step(). Throws ArgumentError while swapped in, and where an
  /// optimizer that averages are fused into made several steps since the last update: call this after each.
  void update(StepBuffer& step);

  /// Exchanges averages with masters and buffers, and refreshes the compute copies: the model now is the
  /// average. A second call changes it back.
  void swap();
  /// The averages under the names of the model: views of live memory. Loading checks as the arena does.
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);
  bool swapped() const { return swapped_; }

 private:
  kernels::AverageRule rule() const { return {options_.decay, options_.warm_up}; }
  template <class Context> void average_masters(Context& context);
  void exchange();
  /// Calls f(masters, averages) for all that is averaged, flat.
  template <class F> void for_each_kept(const F& f) const;

  ParameterArena& arena_;
  EmaOptions options_;
  std::vector<Tensor> averages_;  // per part of the arena: what this rank keeps
  Tensor buffers_;
  bool swapped_ = false;
  std::weak_ptr<Optimizer> optimizer_;  // whose step moves averages,
  std::int64_t calls_ = 0;              // and how often it had been called at the last update
  std::vector<char> left_;              // per parameter: whether it was left to update()
  UpdatePlan rest_;                     // of those
};

/// Until end(), or as long as it lives, the model is its average.
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
