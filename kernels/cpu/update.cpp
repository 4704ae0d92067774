#include "kernels/update.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/update_ops.h"

namespace athanor::kernels {
namespace {

std::span<const UpdateRange> ranges_of(const UpdateTable& table) {
  if (table.count == 0) return {};
  return {reinterpret_cast<const UpdateRange*>(table.ranges.raw_data()),
          static_cast<std::size_t>(table.count)};
}

// Calls f(range) for each, in parallel, with about the same number of elements for every thread.
template <class F> void for_each_range(CpuContext& context, const UpdateTable& table, const F& f) {
  const std::span<const UpdateRange> ranges = ranges_of(table);
  if (ranges.empty()) return;
  const std::int64_t first = ranges.front().start;  // not 0 in the table of one parameter
  cpu::parallel_for(context, table.elements, cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    auto at = std::partition_point(ranges.begin(), ranges.end(),
                                   [&](const UpdateRange& range) { return range.start - first < begin; });
    for (; at != ranges.end() && at->start - first < end; ++at) f(*at);
  });
}

// One pass over a range: gradient in, master and state updated, compute copy out.
template <class G, class W, class Op, class... State>
void update_range(const Op& op, const GradientScale& scale, std::int64_t n, const G* __restrict gradient,
                  W* __restrict weight, float* __restrict master, State* __restrict... state) {
  // By value: a reference to op's floats could point into what the loop writes, for all the compiler knows.
  cpu::vectorize([=] {
    for (std::int64_t i = 0; i < n; ++i) {
      float w = master[i];
      op(scale(float(gradient[i])), w, state[i]...);
      master[i] = w;
      if constexpr (!std::is_same_v<W, float>) weight[i] = W(w);
    }
  });
}

// Calls f.operator()<G, W>() with the types of gradients and compute copy; W is float where there is none.
template <class F> void dispatch_update(const UpdateTable& table, const F& f) {
  dispatch_floating(table.gradients.dtype(), "update", [&]<class G>() {
    if constexpr (!std::is_same_v<G, double>) {
      if (!table.weights.defined()) {
        if constexpr (std::is_same_v<G, float>) f.template operator()<float, float>();
      } else if (table.weights.dtype() == DType::bf16) {
        if constexpr (!std::is_same_v<G, Half>) f.template operator()<G, BFloat16>();
      } else {
        if constexpr (!std::is_same_v<G, BFloat16>) f.template operator()<G, Half>();
      }
    }
  });
}

// Applies make_op(range, member's updates so far) to every element, then counts the update.
template <class MakeOp, class... State>
void apply(CpuContext& context, const UpdateTable& table, const MakeOp& make_op, State*... state) {
  const GradientScale scale = gradient_scale(*context.step());
  auto* steps = table.steps.data<std::int64_t>();
  float* masters = table.masters.data<float>();
  dispatch_update(table, [&]<class G, class W>() {
    const G* gradients = table.gradients.data<G>();
    W* weights = std::is_same_v<W, float> ? nullptr : table.weights.data<W>();
    for_each_range(context, table, [&](const UpdateRange& at) {
      make_op(at, steps[at.member], [&](const auto& op) {
        update_range(op, scale, at.count, gradients + at.gradients, weights ? weights + at.weights : nullptr,
                     masters + at.masters, (state + at.state)...);
      });
    });
  });
  for (const UpdateRange& at : ranges_of(table)) steps[at.member] += at.last;
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

// Sixteen lanes of f64, added at the end in a fixed order: the order does not depend on the vector width. An
// infinity or NaN among the values makes the sum one; finite f32 values cannot overflow it.
template <class G> double sum_of_squares(const G* values, std::int64_t n) {
  constexpr int kLanes = 16;
  double result = 0;
  cpu::vectorize([&] {
    double lane[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int k = 0; k < kLanes; ++k) {
        const double value = float(values[i + k]);
        lane[k] += value * value;
      }
    }
    for (int k = 0; i < n; ++i, ++k) lane[k] += double(float(values[i])) * double(float(values[i]));
    double sum = 0;
    for (int k = 0; k < kLanes; ++k) sum += lane[k];
    result = sum;
  });
  return result;
}

double sum_of_squares(CpuContext& context, const UpdateTable& table) {
  if (table.count == 0) return 0;
  const Scratch scratch = context.scratch(static_cast<std::size_t>(table.count) * sizeof(double));
  double* partial = scratch.as<double>();
  const UpdateRange* first = ranges_of(table).data();
  dispatch_floating(table.gradients.dtype(), "measure_gradients", [&]<class G>() {
    const G* gradients = table.gradients.data<G>();
    for_each_range(context, table, [&](const UpdateRange& at) {
      partial[&at - first] = sum_of_squares(gradients + at.gradients, at.count);
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
  for (const UpdateTable& table : tables) sum += sum_of_squares(context, table);
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

// Muon -----------------------------------------------------------------------------------------------------

namespace {

// Chunk by chunk, in their order.
template <class T> double sum_of_squares(CpuContext& context, const T* values, std::int64_t n) {
  const std::int64_t chunks = (n + kUpdateChunk - 1) / kUpdateChunk;
  const Scratch scratch = context.scratch(static_cast<std::size_t>(chunks) * sizeof(double));
  double* partial = scratch.as<double>();
  cpu::parallel_for(context, chunks, cpu::kGrain / kUpdateChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t at = i * kUpdateChunk;
      partial[i] = sum_of_squares(values + at, std::min(kUpdateChunk, n - at));
    }
  });
  double sum = 0;
  for (std::int64_t i = 0; i < chunks; ++i) sum += partial[i];
  return sum;
}

template <class T, class F>
void for_each_element(CpuContext& context, const T* in, T* out, std::int64_t n, const F& f) {
  cpu::parallel_for(context, n, cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorize([&] {
      for (std::int64_t i = begin; i < end; ++i) out[i] = T(f(float(in[i])));
    });
  });
}

// The matrices Muon works on are f32 or bf16.
template <class F> void dispatch_matrix(DType dtype, const F& f) {
  if (dtype == DType::bf16) return f.template operator()<BFloat16>();
  f.template operator()<float>();
}

}  // namespace

template <>
void muon_momentum(CpuContext& context, const UpdateTable& matrix, float mu, bool nesterov,
                   const Tensor& momentum, const Tensor& x) {
  if (context.step()->skips() || matrix.count == 0) return;
  const GradientScale scale = gradient_scale(*context.step());
  const MuonMomentumOp op(mu, nesterov);
  const std::int64_t origin = ranges_of(matrix).front().state;
  float* state = momentum.data<float>();
  dispatch_floating(matrix.gradients.dtype(), "muon", [&]<class G>() {
    dispatch_matrix(x.dtype(), [&]<class X>() {
      for_each_range(context, matrix, [&](const UpdateRange& at) {
        const G* __restrict gradient = matrix.gradients.data<G>() + at.gradients;
        float* __restrict b = state + at.state;
        X* __restrict out = x.data<X>() + (at.state - origin);
        cpu::vectorize([=] {
          for (std::int64_t i = 0; i < at.count; ++i) out[i] = X(op(scale(float(gradient[i])), b[i]));
        });
      });
    });
  });
}

template <> void normalize(CpuContext& context, const Tensor& x, float eps) {
  dispatch_matrix(x.dtype(), [&]<class T>() {
    T* values = x.data<T>();
    const float factor = normalizing_factor(sum_of_squares(context, values, x.numel()), eps);
    for_each_element(context, values, values, x.numel(), [=](float v) { return v * factor; });
  });
}

template <>
void scale_add_identity(CpuContext& context, const Tensor& x, float alpha, float beta, const Tensor& y) {
  dispatch_matrix(x.dtype(), [&]<class T>() {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    const std::int64_t n = x.dim(0),
                       grain = std::max<std::int64_t>(1, cpu::kGrain / std::max<std::int64_t>(n, 1));
    cpu::parallel_for(context, n, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* from = in + row * n;
        T* to = out + row * n;
        const float diagonal = std::fma(alpha, float(from[row]), beta);
        cpu::vectorize([&] {
          for (std::int64_t i = 0; i < n; ++i) to[i] = T(alpha * float(from[i]));
        });
        to[row] = T(diagonal);
      }
    });
  });
}

template <>
void muon_apply(CpuContext& context, const UpdateTable& matrix, const MuonStep& muon, const Tensor& x) {
  const StepState& step = *context.step();
  if (step.skips() || matrix.count == 0) return;
  const UpdateRange& origin = ranges_of(matrix).front();
  float* masters = matrix.masters.data<float>();
  float grow = 1;
  if (muon.weight_norm > 0)
    grow = muon_growth(muon, sum_of_squares(context, masters + origin.masters, matrix.elements));
  const MuonApplyOp op(muon, step.learning_rate[origin.group], origin.decay, grow);
  const DType copy = matrix.weights.defined() ? matrix.weights.dtype() : DType::f32;
  dispatch_floating(copy, "muon", [&]<class W>() {
    dispatch_matrix(x.dtype(), [&]<class X>() {
      for_each_range(context, matrix, [&](const UpdateRange& at) {
        float* __restrict master = masters + at.masters;
        W* __restrict weight = std::is_same_v<W, float> ? nullptr : matrix.weights.data<W>() + at.weights;
        const X* __restrict direction = x.data<X>() + (at.state - origin.state);
        cpu::vectorize([=] {
          for (std::int64_t i = 0; i < at.count; ++i) {
            float w = master[i];
            op(float(direction[i]), w);
            master[i] = w;
            if constexpr (!std::is_same_v<W, float>) weight[i] = W(w);
          }
        });
      });
    });
  });
  auto* steps = matrix.steps.data<std::int64_t>();
  ++steps[origin.member];
}

// Flat tensors ---------------------------------------------------------------------------------------------

template <> void copy_if_skipped(CpuContext& context, const Tensor& from, const Tensor& to) {
  if (!context.step()->skips()) return;
  std::memcpy(to.raw_data(), from.raw_data(), to.bytes());
}

template <>
void average_update(CpuContext& context, const Tensor& x, const Tensor& average, double decay, bool warm_up) {
  const StepState& step = *context.step();
  if (step.skips()) return;
  const AverageOp op = average_op(step, decay, warm_up);
  const float* in = x.data<float>();
  float* out = average.data<float>();
  cpu::parallel_for(context, x.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorize([=] {
      for (std::int64_t i = begin; i < end; ++i) op(in[i], out[i]);
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
