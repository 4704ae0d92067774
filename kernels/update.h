#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/step_rules.h"

// All operations of an optimizer on the flat arenas, one launch each. Kernels read the step's scalars
// (learning rate per group, loss scale, clipping, found_inf) from the context's StepState. Unless stated, all
// are no-ops on a skipped step, and none waits for the device.

namespace athanor::kernels {

/// Elements of one parameter, at most kUpdateChunk of them. Offsets are in elements of flat tensors.
struct UpdateRange {
  std::int64_t start;  ///< number of elements in all earlier ranges of the table
  std::int64_t count;
  std::int64_t gradients;  ///< offset in gradients
  std::int64_t weights;    ///< offset in weights
  std::int64_t masters;    ///< offset in masters
  std::int64_t averages;   ///< offset in averages
  std::int64_t state;      ///< offset in each state tensor
  std::int32_t member;     ///< index in steps
  std::int16_t group;      ///< index in StepState::learning_rate and the options
  bool decay;              ///< weight decay applies
  bool last;               ///< the last range of its parameter
};

/// Elements that one range of an update covers at most.
inline constexpr std::int64_t kUpdateChunk = 16384;

/// The rule of averages: average += (1 - d)(value - average) with d = min(decay, (1 + t) / (10 + t)) if
/// `warm_up`, else d = decay; t counts applied steps, this one included.
struct AverageRule {
  double decay = 0;
  bool warm_up = false;
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

/// The options of SGD for one group of parameters.
struct SgdGroup {
  float momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};

/// Stochastic gradient descent, see SgdOp and MomentumOp. `momentum` flat f32, or undefined if every group
/// has momentum 0. Moves g + 8 bytes per parameter, 16 + g with momentum (g: bytes of a gradient), and writes
/// the compute copy.
template <class Context>
void sgd_update(Context& context, const UpdateTable& table, std::span<const SgdGroup> groups,
                const Tensor& momentum);

struct AdamGroup {
  double beta1 = 0.9, beta2 = 0.999;
  float eps = 1e-8f, weight_decay = 0;
  bool decoupled = false;  ///< AdamW
};

/// Adam and AdamW, see AdamOp; t is the member's own count of updates. Both moments flat f32. Moves 24 + g
/// bytes per parameter and writes the compute copy.
template <class Context>
void adam_update(Context& context, const UpdateTable& table, std::span<const AdamGroup> groups,
                 const Tensor& first_moment, const Tensor& second_moment);

/// value = weight * loss_scale, one f32 element: the gradient with which backward() of a loss begins.
template <class Context> void loss_seed(Context& context, const Tensor& value, float weight);

/// Reads all gradients of the tables once and sets StepState::grad_norm (L2, of the unscaled gradients),
/// found_inf, found_outlier, clip_coefficient = min(1, max_norm / (grad_norm + 1e-6)) and clip_value. Squares
/// are summed in f64, chunk by chunk in the order of the tables: the same bits for any number of threads.
template <class Context>
void measure_gradients(Context& context, std::span<const UpdateTable> tables, const GradientLimits& limits);

/// The rates of the possible next steps; only the device knows which step is next.
struct RateWindow {
  static constexpr int kSteps = 17;  ///< StepBuffer::kLead + 1
  std::int64_t first_step = 0;       ///< lower bound of applied_steps
  int steps = 0;                     ///< number of possible values
  int first_group = 0, groups = 0;
  float rate[kSteps][kMaxParamGroups];  ///< [step - first_step][group - first_group]
};

/// learning_rate[first_group + g] = rate[applied_steps - first_step][g].
template <class Context> void set_learning_rates(Context& context, const RateWindow& window);

/// Counts the step as applied or skipped; updates the loss scale and the averages of the gradient norm.
template <class Context>
void finish_step(Context& context, const LossScaling& scaling, const OutlierGuard& outliers);

/// to = from if the step is skipped; dense, of one dtype and size, at least 4 bytes per element. The only
/// function here that acts on a skipped step.
template <class Context> void copy_if_skipped(Context& context, const Tensor& from, const Tensor& to);

/// Moves averages towards x, both flat f32. Moves 12 bytes per element.
template <class Context>
void average_update(Context& context, const Tensor& x, const Tensor& average, const AverageRule& rule);
/// Moves the averages of a table's ranges towards their masters: for parameters that no update has touched.
/// Moves 12 bytes per element.
template <class Context> void average_ranges(Context& context, const UpdateTable& table);

/// Exchanges the values of two flat f32 tensors.
template <class Context> void exchange(Context& context, const Tensor& a, const Tensor& b);

}  // namespace athanor::kernels
