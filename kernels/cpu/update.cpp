#include "kernels/update.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/update_range.h"
#include "kernels/update_ops.h"

namespace athanor::kernels {

using cpu::count_updates;
using cpu::for_each_range;
using cpu::ranges_of;
using cpu::update_range;
using cpu::with_average;

namespace {

// Applies make_op(range, member's updates so far) to every element, then counts the update.
template <class MakeOp, class... State>
void apply(CpuContext& context, const UpdateTable& table, const MakeOp& make_op, State*... state) {
  const GradientScale scale = gradient_scale(*context.step());
  auto* steps = table.steps.data<std::int64_t>();
  float* masters = table.masters.data<float>();
  dispatch_update(table, [&]<class G, class W>() {
    const G* gradients = table.gradients.data<G>();
    W* weights = std::is_same_v<W, float> ? nullptr : table.weights.data<W>();
    with_average(context, table, [&](const auto& move, float* averages) {
      for_each_range(context, table, [&](const UpdateRange& at) {
        make_op(at, steps[at.member], [&](const auto& op) {
          update_range(op, scale, move, at.count, gradients + at.gradients,
                       weights ? weights + at.weights : nullptr, masters + at.masters,
                       averages ? averages + at.averages : nullptr, (state + at.state)...);
        });
      });
    });
  });
  count_updates(table);
}

}  // namespace

template <>
void sgd_update(CpuContext& context, const UpdateTable& table, std::span<const SgdGroup> groups,
                const Tensor& momentum) {
  const StepState& step = *context.step();
  if (step.skips()) return;
  const auto group_of = [&](const UpdateRange& at) { return groups[static_cast<std::size_t>(at.group)]; };
  if (!momentum.defined()) {
    apply(context, table, [&](const UpdateRange& at, std::int64_t, const auto& run) {
      run(sgd_op(group_of(at), step.learning_rate[at.group], at.decay));
    });
    return;
  }
  const auto make_op = [&](const UpdateRange& at, std::int64_t updates, const auto& run) {
    const SgdGroup group = group_of(at);
    const float lr = step.learning_rate[at.group];
    if (group.nesterov) {
      run(momentum_op<true>(group, lr, at.decay, updates));
    } else {
      run(momentum_op<false>(group, lr, at.decay, updates));
    }
  };
  apply(context, table, make_op, momentum.data<float>());
}

template <>
void adam_update(CpuContext& context, const UpdateTable& table, std::span<const AdamGroup> groups,
                 const Tensor& first_moment, const Tensor& second_moment) {
  const StepState& step = *context.step();
  if (step.skips()) return;
  const auto make_op = [&](const UpdateRange& at, std::int64_t updates, const auto& run) {
    const AdamGroup& group = groups[static_cast<std::size_t>(at.group)];
    const float lr = step.learning_rate[at.group];
    if (group.decoupled) {
      run(adam_op<true>(group, lr, at.decay, updates));
    } else {
      run(adam_op<false>(group, lr, at.decay, updates));
    }
  };
  apply(context, table, make_op, first_moment.data<float>(), second_moment.data<float>());
}

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

template <>
void measure_gradients(CpuContext& context, std::span<const UpdateTable> tables,
                       const GradientLimits& limits) {
  double sum = 0;
  for (const UpdateTable& table : tables) sum += squares_of(context, table);
  measure(*context.step(), sum, limits);
}

template <> void loss_seed(CpuContext& context, const Tensor& value, float weight) {
  *value.data<float>() = weight * context.step()->loss_scale;
}

template <> void set_learning_rates(CpuContext& context, const RateWindow& window) {
  StepState& step = *context.step();
  const float* rate = window.rate[step.applied_steps - window.first_step];
  std::copy_n(rate, window.groups, step.learning_rate + window.first_group);
}

template <> void finish_step(CpuContext& context, const LossScaling& scaling, const OutlierGuard& outliers) {
  finish(*context.step(), scaling, outliers);
}

// Flat tensors ---------------------------------------------------------------------------------------------

template <> void copy_if_skipped(CpuContext& context, const Tensor& from, const Tensor& to) {
  if (!context.step()->skips()) return;
  std::memcpy(to.raw_data(), from.raw_data(), to.bytes());
}

template <>
void average_update(CpuContext& context, const Tensor& x, const Tensor& average, const AverageRule& rule) {
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

template <> void average_ranges(CpuContext& context, const UpdateTable& table) {
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

template <> void exchange(CpuContext& context, const Tensor& a, const Tensor& b) {
  float *left = a.data<float>(), *right = b.data<float>();
  cpu::parallel_for(context, a.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::swap_ranges(left + begin, left + end, right + begin);
  });
}

}  // namespace athanor::kernels
