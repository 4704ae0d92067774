#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/step_rules.h"
#include "kernels/step_state.h"

// All operations of an optimizer on the flat arenas, one launch each. Kernels read the step's scalars
// (learning rate per group, loss scale, clipping, found_inf) from the context's StepState. Unless stated, all
// are no-ops on a skipped step, and none waits for the device.

namespace athanor::kernels {

/// Elements of one parameter, at most kUpdateChunk of them. Offsets are in elements of flat tensors.
struct UpdateRange {
  std::int64_t start;      ///< number of elements in all earlier ranges of the table
  std::int64_t gradients;  ///< offset in gradients
  std::int64_t weights;    ///< offset in weights
  std::int64_t masters;    ///< offset in masters
  std::int64_t averages;   ///< offset in averages
  std::int64_t state;      ///< offset in each state tensor
  std::int32_t count;
  float lr_scale = 1;   ///< factor of its group's learning rate
  std::int32_t member;  ///< index in steps
  std::int16_t group;   ///< index in StepState::learning_rate and the options
  bool decay;           ///< weight decay applies
  bool last;            ///< the last range of its parameter

  ATH_HD float learning_rate(const StepState& step) const { return step.learning_rate[group] * lr_scale; }
};

/// Elements that one range of an update covers at most.
inline constexpr std::int64_t kUpdateChunk = 16384;
/// The ranges of n elements.
constexpr std::int64_t update_chunks(std::int64_t n) {
  return (n + kUpdateChunk - 1) / kUpdateChunk;
}

/// The rule of averages: average += (1 - d)(value - average) with d = min(decay, (1 + t) / (10 + t)) if
/// `warm_up`, else d = decay, in every `every`-th applied step; t counts these, this one included.
struct AverageRule {
  double decay = 0;
  bool warm_up = false;
  int every = 1;
};

/// The parameters that one launch updates: those of one arena part that have a gradient.
struct UpdateTable {
  Tensor gradients;  ///< flat, f32, f16 or bf16
  Tensor weights;    ///< flat, the compute copy of the masters; undefined if they are the masters
  Tensor masters;    ///< flat f32
  Tensor averages;   ///< flat f32, of the masters; or undefined
  Tensor steps;      ///< i64 per member: its number of updates
  Tensor ranges;     ///< u8: UpdateRange[count], ordered by start
  std::int64_t count = 0;
  std::int64_t elements = 0;
  AverageRule average;  ///< the rule if an update also updates averages, at 8 bytes per parameter
};

/// Updates masters, state and compute copies of the table's parameters by a rule of kernels/update_ops.h, and
/// counts the updates. `groups`: options by StepState::learning_rate's index. `state`: Rule::kStates flat f32
/// tensors. Moves g + 8 + 8 kStates bytes per parameter (g: bytes of a gradient), and writes the compute
/// copy.
ATH_KERNEL(template <class Rule> void, update_parameters, const UpdateTable& table,
           std::span<const typename Rule::Group> groups, std::span<const Tensor> state);

/// value = weight * loss_scale, one f32 element: the gradient with which backward() of a loss begins.
ATH_KERNEL(void, loss_seed, Out value, float weight);

/// Reads all gradients of the tables once and sets StepState::grad_norm (L2, of the unscaled gradients),
/// found_inf, found_outlier, clip_coefficient = min(1, max_norm / (grad_norm + 1e-6)) and clip_value. Squares
/// are summed in f64, chunk by chunk in the order of the tables: the same bits for any number of threads.
ATH_KERNEL(void, measure_gradients, std::span<const UpdateTable> tables, const GradientLimits& limits);

/// The rates of the possible next steps; only the device knows which step is next.
struct RateWindow {
  static constexpr int kSteps = 17;  ///< StepBuffer::kLead + 1
  std::int64_t first_step = 0;       ///< lower bound of applied_steps
  int steps = 0;                     ///< number of possible values
  int first_group = 0, groups = 0;
  float rate[kSteps][kMaxParamGroups];  ///< [step - first_step][group - first_group]
};

/// learning_rate[first_group + g] = rate[applied_steps - first_step][g].
ATH_KERNEL(void, set_learning_rates, const RateWindow& window);

/// Counts the step as applied or skipped; updates the loss scale and the averages of the gradient norm.
ATH_KERNEL(void, finish_step, const LossScaling& scaling, const OutlierGuard& outliers);

/// to = from if the step is skipped; dense, of one dtype and size, at least 4 bytes per element. The only
/// function here that acts on a skipped step.
ATH_KERNEL(void, copy_if_skipped, const Tensor& from, Out to);

/// Moves averages towards x, both flat f32. Moves 12 bytes per element.
ATH_KERNEL(void, average_update, const Tensor& x, Out average, const AverageRule& rule);
/// Moves the averages of a table's ranges towards their masters: for parameters that no update has touched.
/// Moves 12 bytes per element.
ATH_KERNEL(void, average_ranges, const UpdateTable& table);

/// Exchanges the values of two flat f32 tensors.
ATH_KERNEL(void, exchange, Out a, Out b);
ATH_MAP(exchange, (Out a, Out b), "exchange", (a, b), (a, b))

}  // namespace athanor::kernels
