#include "kernels/update.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/update_range.h"
#include "kernels/scratch.h"
#include "kernels/update_ops.h"

namespace athanor::kernels {

using cpu::count_updates;
using cpu::for_each_range;
using cpu::ranges_of;
using cpu::update_range;
using cpu::with_average;

namespace {

template <class Rule, class... State>
void apply(CpuContext& context, const UpdateTable& table, std::span<const typename Rule::Group> groups,
           State*... state) {
  const StepState& step = *context.step();
  if (step.skips()) return;
  const GradientScale scale = gradient_scale(step);
  auto* steps = table.steps.data<std::int64_t>();
  float* masters = table.masters.data<float>();
  dispatch_update(table, [&]<class G, class W>() {
    const G* gradients = table.gradients.data<G>();
    W* weights = std::is_same_v<W, float> ? nullptr : table.weights.data<W>();
    with_average(context, table, [&](const auto& move, float* averages) {
      for_each_range(context, table, [&](const UpdateRange& at) {
        const auto run = [&](const auto& op) {
          update_range(op, scale, move, at.count, gradients + at.gradients,
                       weights ? weights + at.weights : nullptr, masters + at.masters,
                       averages ? averages + at.averages : nullptr, (state + at.state)...);
        };
        const typename Rule::Group& group = groups[static_cast<std::size_t>(at.group)];
        const auto op = Rule::make(group, at.learning_rate(step), at.decay, steps[at.member]);
        if (Rule::variant(group)) return run(std::bit_cast<typename Rule::Variant>(op));
        run(op);
      });
    });
  });
  count_updates(table);
}

template <class Rule, std::size_t... I>
void apply(CpuContext& context, const UpdateTable& table, std::span<const typename Rule::Group> groups,
           [[maybe_unused]] std::span<const Tensor> state, std::index_sequence<I...>) {
  apply<Rule>(context, table, groups, state[I].template data<float>()...);
}

}  // namespace

#define ATH_SPECIALISE(Rule)                                                                         \
  template <>                                                                                        \
  void update_parameters<Rule>(CpuContext & context, const UpdateTable& table,                       \
                               std::span<const Rule::Group> groups, std::span<const Tensor> state) { \
    apply<Rule>(context, table, groups, state, std::make_index_sequence<Rule::kStates>());           \
  }
ATH_UPDATE_RULES(ATH_SPECIALISE)
#undef ATH_SPECIALISE

// Gradient norm --------------------------------------------------------------------------------------------

namespace {

double squares_of(CpuContext& context, const UpdateTable& table) {
  if (table.count == 0) return 0;
  const Scratch scratch = context.scratch(static_cast<std::size_t>(table.count) * sizeof(double));
  double* partial = scratch.as<double>();
  const UpdateRange* first = ranges_of(table).data();
  dispatch_floating(table.gradients.dtype(), "measure_gradients", [&]<class G>() {
    const G* gradients = table.gradients.data<G>();
    for_each_range(context, table, [&](const UpdateRange& at) {
      partial[&at - first] = cpu::sum_of_squares(gradients + at.gradients, at.count);
    });
  });
  double sum = 0;
  for (std::int64_t i = 0; i < table.count; ++i) sum += partial[i];
  return sum;
}

}  // namespace

void measure_gradients(CpuContext& context, std::span<const UpdateTable> tables,
                       const GradientLimits& limits) {
  double sum = 0;
  for (const UpdateTable& table : tables) sum += squares_of(context, table);
  measure(*context.step(), sum, limits);
}

void loss_seed(CpuContext& context, Out value, float weight) {
  *value.data<float>() = weight * context.step()->loss_scale;
}

void set_learning_rates(CpuContext& context, const RateWindow& window) {
  StepState& step = *context.step();
  const float* rate = window.rate[step.applied_steps - window.first_step];
  std::copy_n(rate, window.groups, step.learning_rate + window.first_group);
}

void finish_step(CpuContext& context, const LossScaling& scaling, const OutlierGuard& outliers) {
  finish(*context.step(), scaling, outliers);
}

// Flat tensors ---------------------------------------------------------------------------------------------

void copy_if_skipped(CpuContext& context, const Tensor& from, Out to) {
  if (!context.step()->skips()) return;
  std::memcpy(to.raw_data(), from.raw_data(), to.bytes());
}

void average_update(CpuContext& context, const Tensor& x, Out average, const AverageRule& rule) {
  const StepState& step = *context.step();
  if (step.skips()) return;
  const AverageOp op = average_op(step, rule);
  const float* in = x.data<float>();
  float* out = average.data<float>();
  cpu::parallel_for(context, x.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorize([=] {
      for (std::int64_t i = begin; i < end; ++i) op(in[i], out[i]);
    });
  });
}

void average_ranges(CpuContext& context, const UpdateTable& table) {
  const StepState& step = *context.step();
  if (step.skips()) return;
  const AverageOp op = average_op(step, table.average);
  const float* masters = table.masters.data<float>();
  float* averages = table.averages.data<float>();
  for_each_range(context, table, [&](const UpdateRange& at) {
    const float* __restrict in = masters + at.masters;
    float* __restrict out = averages + at.averages;
    cpu::vectorize([=] {
      for (std::int64_t i = 0; i < at.count; ++i) op(in[i], out[i]);
    });
  });
}

void exchange(CpuContext& context, Out a, Out b) {
  float *left = a.data<float>(), *right = b.data<float>();
  cpu::parallel_for(context, a.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::swap_ranges(left + begin, left + end, right + begin);
  });
}

}  // namespace athanor::kernels
