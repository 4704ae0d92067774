#include <algorithm>
#include <bit>

#include "kernels/cuda/context.h"
#include "kernels/cuda/update_range.h"
#include "kernels/scratch.h"
#include "kernels/update.h"
#include "kernels/update_ops.h"
#include "tensor/base/error.h"
#include "tensor/cuda/capture.h"

namespace athanor::kernels {
namespace {

constexpr int kThreads = kUpdateThreads;

/// What one range is updated with.
template <class Rule> struct Prepared {
  typename Rule::Op op;
  AverageOp average;
  bool variant;
};

/// Calls f with the op, or with its variant.
template <class Rule, class F> __device__ void visit(const Prepared<Rule>& how, const F& f) {
  if constexpr (std::is_same_v<typename Rule::Op, typename Rule::Variant>) {
    f(how.op);
  } else {
    how.variant ? f(std::bit_cast<typename Rule::Variant>(how.op)) : f(how.op);
  }
}

/// Options of all groups, in a kernel's parameters.
template <class Group> struct Groups {
  Group group[kMaxParamGroups];

  explicit Groups(std::span<const Group> groups) : group{} { std::copy(groups.begin(), groups.end(), group); }
};

template <class Rule>
__global__ void __launch_bounds__(kThreads)
    prepare(const UpdateRange* ranges, std::int64_t count, const std::int64_t* steps, const StepState* step,
            Groups<typename Rule::Group> groups, AverageRule average, Prepared<Rule>* prepared) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const UpdateRange at = ranges[i];
  const auto& group = groups.group[at.group];
  prepared[i] = {Rule::make(group, at.learning_rate(*step), at.decay, steps[at.member]),
                 average_op(*step, average), Rule::variant(group)};
}

/// One update of all elements of a table: sizeof(G) + 8 + 8 kStates bytes an element, 8 more with averages,
/// and the compute copy; 4 FLOPs (SGD) to 14 (Adam), 3 more with averages.
template <class Rule, class G, class W, bool kAverages>
__global__ void __launch_bounds__(kThreads, 4)
    update(const UpdateRange* ranges, const Prepared<Rule>* prepared, const StepState* step,
           Flat<G, W, Rule::kStates> flat, std::int64_t* steps) {
  constexpr int kStates = Rule::kStates;
  if (step->skips()) return;
  const std::int64_t index = blockIdx.x / kParts;
  const UpdateRange range = ranges[index];
  if (blockIdx.x % kParts == 0 && threadIdx.x == 0 && range.last) ++steps[range.member];
  const G* __restrict__ gradient = flat.gradient + range.gradients;
  W* __restrict__ weight = flat.weight ? flat.weight + range.weights : nullptr;
  float* __restrict__ master = flat.master + range.masters;
  float* __restrict__ average = kAverages ? flat.average + range.averages : nullptr;
  float* state[kStates + 1];
  bool vectors = vectors_at(gradient) && vectors_at(weight) && vectors_at(master) && vectors_at(average);
#pragma unroll
  for (int k = 0; k < kStates; ++k) {
    state[k] = flat.state[k] + range.state;
    vectors = vectors && vectors_at(state[k]);
  }
  const GradientScale scale = gradient_scale(*step);
  const Prepared<Rule> how = prepared[index];
  visit(how, [&](const auto& op) {
    for_each_in_part(range, vectors, [&](std::int64_t i, auto n) {
      const auto g = cuda::load<n()>(gradient + i);
      auto w = cuda::load<n()>(master + i);
      Vec<float, n()> s[kStates + 1];
#pragma unroll
      for (int k = 0; k < kStates; ++k) s[k] = cuda::load<n()>(state[k] + i);
      [[maybe_unused]] Vec<float, n()> a;
      if constexpr (kAverages) a = cuda::load<n()>(average + i);
      [[maybe_unused]] Vec<W, n()> copy;
#pragma unroll
      for (int j = 0; j < n(); ++j) {
        const float unscaled = scale(cuda::widen(g, j));
        if constexpr (kStates == 0) op(unscaled, w[j]);
        if constexpr (kStates == 1) op(unscaled, w[j], s[0][j]);
        if constexpr (kStates == 2) op(unscaled, w[j], s[0][j], s[1][j]);
        if constexpr (!std::is_same_v<W, float>) copy[j] = W(w[j]);
        if constexpr (kAverages) how.average(w[j], a[j]);
      }
      cuda::store<n()>(master + i, w);
      if constexpr (kAverages) cuda::store<n()>(average + i, a);
#pragma unroll
      for (int k = 0; k < kStates; ++k) cuda::store<n()>(state[k] + i, s[k]);
      if constexpr (!std::is_same_v<W, float>) cuda::store<n()>(weight + i, copy);
    });
  });
}

template <class Rule>
void run(const CudaContext& context, const UpdateTable& table, std::span<const typename Rule::Group> groups,
         std::span<const Tensor> state) {
  if (table.count == 0) return;
  const Scratch memory = context.scratch(static_cast<std::size_t>(table.count) * sizeof(Prepared<Rule>));
  auto* prepared = memory.as<Prepared<Rule>>();
  auto* steps = table.steps.data<std::int64_t>();
  cuda::launch(context,
               {"prepare_update", static_cast<unsigned>((table.count + kThreads - 1) / kThreads), kThreads},
               prepare<Rule>, ranges_of(table), table.count, steps, context.step(),
               Groups<typename Rule::Group>(groups), table.average, prepared);
  const bool averages = table.averages.defined();
  dispatch_update(table, [&]<class G, class W>() {
    Flat<G, W, Rule::kStates> flat{table.gradients.data<G>(),
                                   table.weights.defined() ? table.weights.data<W>() : nullptr,
                                   table.masters.data<float>(),
                                   averages ? table.averages.data<float>() : nullptr,
                                   {}};
    for (int k = 0; k < Rule::kStates; ++k) flat.state[k] = state[static_cast<std::size_t>(k)].data<float>();
    cuda::launch(context, {Rule::kName, parts_of(table), kThreads},
                 averages ? update<Rule, G, W, true> : update<Rule, G, W, false>, ranges_of(table), prepared,
                 context.step(), flat, steps);
  });
}

}  // namespace

#define ATH_SPECIALISE(Rule)                                                                         \
  template <>                                                                                        \
  void update_parameters<Rule>(CudaContext & context, const UpdateTable& table,                      \
                               std::span<const Rule::Group> groups, std::span<const Tensor> state) { \
    run<Rule>(context, table, groups, state);                                                        \
  }
ATH_UPDATE_RULES(ATH_SPECIALISE)
#undef ATH_SPECIALISE

// Sums of squares ------------------------------------------------------------------------------------------

namespace {

struct Measure {
  StepState* step;
  GradientLimits limits;
  __device__ void operator()(double squares, unsigned) const { measure(*step, squares, limits); }
};
}  // namespace

void measure_gradients(CudaContext& context, std::span<const UpdateTable> tables,
                       const GradientLimits& limits) {
  std::int64_t count = 0;
  for (const UpdateTable& table : tables) count += table.count;
  const Scratch memory = context.scratch(static_cast<std::size_t>(count) * sizeof(double));
  auto* partial = memory.as<double>();
  std::int64_t done = 0;
  for (const UpdateTable& table : tables) {
    if (table.count == 0) continue;
    dispatch_floating(table.gradients.dtype(), "measure_gradients", [&]<class G>() {
      if constexpr (!std::is_same_v<G, double>) {
        cuda::launch(context, {"measure_gradients", static_cast<unsigned>(table.count), kThreads},
                     squares_of_ranges<InGradients, G>, table.gradients.data<G>(), ranges_of(table),
                     partial + done);
      }
    });
    done += table.count;
  }
  cuda::launch(context, {"measure_finish", 1, kThreads}, total_squares<Measure>, partial, count,
               Measure{context.step(), limits});
}

// Step scalars ---------------------------------------------------------------------------------------------

namespace {

__global__ void __launch_bounds__(32) seed_of_loss(const StepState* step, float weight, float* value) {
  *value = weight * step->loss_scale;
}

__global__ void __launch_bounds__(32)
    end_of_step(StepState* step, LossScaling scaling, OutlierGuard outliers) {
  finish(*step, scaling, outliers);
}

__global__ void __launch_bounds__(32) choose_rates(StepState* step, RateWindow window) {
  const int group = static_cast<int>(threadIdx.x);
  if (group >= window.groups) return;
  step->learning_rate[window.first_group + group] =
      window.rate[step->applied_steps - window.first_step][group];
}

}  // namespace

void set_learning_rates(CudaContext& context, const RateWindow& window) {
  if (cuda::thread_is_capturing())
    athanor::detail::fail<Error>("set_learning_rates: must be called before each launch, not captured");
  cuda::launch(context, {"set_learning_rates", 1, 32}, choose_rates, context.step(), window);
}

void loss_seed(CudaContext& context, Out value, float weight) {
  cuda::launch(context, {"loss_seed", 1, 1}, seed_of_loss, context.step(), weight, value.data<float>());
}

void finish_step(CudaContext& context, const LossScaling& scaling, const OutlierGuard& outliers) {
  cuda::launch(context, {"finish_step", 1, 1}, end_of_step, context.step(), scaling, outliers);
}

// Flat tensors ---------------------------------------------------------------------------------------------

namespace {

struct CopyIfSkipped {
  const StepState* step;
  const float* from;
  float* to;
  __device__ bool begin(std::int64_t, std::int64_t) const { return step->skips(); }
  template <int V> __device__ void at(std::int64_t i) const {
    cuda::store<V>(to + i, cuda::load<V>(from + i));
  }
};

struct MoveAverage {
  const StepState* step;
  AverageRule rule;
  const float* x;
  float* average;
  AverageOp op{};

  __device__ bool begin(std::int64_t, std::int64_t) {
    op = average_op(*step, rule);
    return !step->skips();
  }
  template <int V> __device__ void at(std::int64_t i) const {
    const auto in = cuda::load<V>(x + i);
    auto out = cuda::load<V>(average + i);
#pragma unroll
    for (int k = 0; k < V; ++k) op(in[k], out[k]);
    cuda::store<V>(average + i, out);
  }
};

struct Exchange {
  float *a, *b;
  __device__ bool begin(std::int64_t, std::int64_t) const { return true; }
  template <int V> __device__ void at(std::int64_t i) const {
    const auto left = cuda::load<V>(a + i), right = cuda::load<V>(b + i);
    cuda::store<V>(a + i, right);
    cuda::store<V>(b + i, left);
  }
};

/// Moves averages alone: 12 bytes an element.
__global__ void __launch_bounds__(kThreads)
    move_averages(const UpdateRange* ranges, const StepState* step, AverageRule rule, const float* masters,
                  float* averages) {
  if (step->skips()) return;
  const AverageOp op = average_op_of_block(*step, rule);
  const UpdateRange range = ranges[blockIdx.x / kParts];
  const float* __restrict__ master = masters + range.masters;
  float* __restrict__ average = averages + range.averages;
  for_each_in_part(range, vectors_at(master) && vectors_at(average), [&](std::int64_t i, auto n) {
    const auto w = cuda::load<n()>(master + i);
    auto a = cuda::load<n()>(average + i);
#pragma unroll
    for (int j = 0; j < n(); ++j) op(w[j], a[j]);
    cuda::store<n()>(average + i, a);
  });
}

}  // namespace

void copy_if_skipped(CudaContext& context, const Tensor& from, Out to) {
  const auto* source = reinterpret_cast<const float*>(from.raw_data());
  auto* target = reinterpret_cast<float*>(to.raw_data());
  const auto words = static_cast<std::int64_t>(to.bytes() / sizeof(float));
  launch_vectors<float>(context, "copy_if_skipped", 1, words, CopyIfSkipped{context.step(), source, target},
                        source, target);
}

void average_update(CudaContext& context, const Tensor& x, Out average, const AverageRule& rule) {
  const float* in = x.data<float>();
  float* out = average.data<float>();
  launch_vectors<float>(context, "average_update", 1, x.numel(), MoveAverage{context.step(), rule, in, out},
                        in, out);
}

void average_ranges(CudaContext& context, const UpdateTable& table) {
  if (table.count == 0) return;
  cuda::launch(context, {"average_ranges", parts_of(table), kThreads}, move_averages, ranges_of(table),
               context.step(), table.average, table.masters.data<float>(), table.averages.data<float>());
}

void exchange(CudaContext& context, Out a, Out b) {
  float *left = a.data<float>(), *right = b.data<float>();
  launch_vectors<float>(context, "exchange", 1, a.numel(), Exchange{left, right}, left, right);
}

}  // namespace athanor::kernels
