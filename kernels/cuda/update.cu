#include <bit>

#include "kernels/cuda/divide.h"
#include "kernels/cuda/group.h"
#include "kernels/update.h"
#include "kernels/update_ops.h"

// Updates move memory, a few FLOPs a byte. A range of a table goes to kParts blocks, whose threads take four
// elements at a time. Everything of a step that is one number per parameter (Adam's bias correction) is
// worked out by a small kernel before; it alone reads how many updates a member has received, so that the
// large one may count this update. Sums of squares: one per range, in double, then all of them in one block.

namespace athanor::kernels {
namespace {

using cuda::kVec;
using cuda::Vec;

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // elements of every tensor a thread takes at a time: 16 bytes of f32
constexpr int kParts = 4;
constexpr std::int64_t kPart = kUpdateChunk / kParts;

const UpdateRange* ranges_of(const UpdateTable& table) {
  return reinterpret_cast<const UpdateRange*>(table.ranges.raw_data());
}
unsigned parts_of(const UpdateTable& table) {
  return static_cast<unsigned>(table.count * kParts);
}

/// Whether kWidth elements at p can be moved at once.
template <class T> __device__ __forceinline__ bool vectors_at(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % (sizeof(T) * kWidth) == 0;
}

/// Calls f(i, n) for this block's part of a range: n, an integral_constant, elements from i on.
template <class F>
__device__ __forceinline__ void for_each_in_part(const UpdateRange& range, bool vectors, const F& f) {
  const std::int64_t begin = blockIdx.x % kParts * kPart;
  const std::int64_t end = begin + kPart < range.count ? begin + kPart : range.count;
  std::int64_t single = begin;
  if (vectors && end > begin) {
    single = end - (end - begin) % kWidth;
    for (std::int64_t i = begin + threadIdx.x * kWidth; i < single; i += kThreads * kWidth)
      f(i, std::integral_constant<int, kWidth>());
  }
  for (std::int64_t i = single + threadIdx.x; i < end; i += kThreads) f(i, std::integral_constant<int, 1>());
}

// What an optimizer does to one element, and how that is made for a range.

struct SgdRule {
  using Group = SgdGroup;
  using Op = SgdOp;
  static constexpr int kStates = 0;
  ATH_HD static bool variant(const Group&) { return false; }
  ATH_HD static Op make(const Group& group, float lr, bool decay, std::int64_t) {
    return sgd_op(group, lr, decay);
  }
  template <class F> __device__ static void visit(const Op& op, bool, const F& f) { f(op); }
};
struct MomentumRule {
  using Group = SgdGroup;
  using Op = MomentumOp<false>;
  static constexpr int kStates = 1;
  ATH_HD static bool variant(const Group& group) { return group.nesterov; }
  ATH_HD static Op make(const Group& group, float lr, bool decay, std::int64_t updates) {
    return momentum_op<false>(group, lr, decay, updates);
  }
  template <class F> __device__ static void visit(const Op& op, bool nesterov, const F& f) {
    nesterov ? f(std::bit_cast<MomentumOp<true>>(op)) : f(op);
  }
};
struct AdamRule {
  using Group = AdamGroup;
  using Op = AdamOp<false>;
  static constexpr int kStates = 2;
  ATH_HD static bool variant(const Group& group) { return group.decoupled; }
  ATH_HD static Op make(const Group& group, float lr, bool decay, std::int64_t updates) {
    if (group.decoupled) return std::bit_cast<Op>(adam_op<true>(group, lr, decay, updates));
    return adam_op<false>(group, lr, decay, updates);
  }
  template <class F> __device__ static void visit(const Op& op, bool decoupled, const F& f) {
    decoupled ? f(std::bit_cast<AdamOp<true>>(op)) : f(op);
  }
};

/// What one range is updated with.
template <class Rule> struct Prepared {
  typename Rule::Op op;
  bool variant;
};

/// Options of all groups, in a kernel's parameters.
template <class Group> struct Groups {
  Group group[kMaxParamGroups];

  explicit Groups(std::span<const Group> groups) : group{} { std::copy(groups.begin(), groups.end(), group); }
};

template <class Rule>
__global__ void __launch_bounds__(kThreads)
    prepare(const UpdateRange* ranges, std::int64_t count, const std::int64_t* steps, const StepState* step,
            Groups<typename Rule::Group> groups, Prepared<Rule>* prepared) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const UpdateRange at = ranges[i];
  const auto& group = groups.group[at.group];
  prepared[i] = {Rule::make(group, step->learning_rate[at.group], at.decay, steps[at.member]),
                 Rule::variant(group)};
}

/// The flat tensors of an update; `weight` null where there is no compute copy.
template <class G, class W, int kStates> struct Flat {
  const G* gradient;
  W* weight;
  float* master;
  float* state[kStates > 0 ? kStates : 1];
};

/// One update of all elements of a table: sizeof(G) + 8 + 8 kStates bytes an element and the compute copy,
/// and 4 FLOPs (SGD) to 14 (Adam).
template <class Rule, class G, class W>
__global__ void __launch_bounds__(kThreads)
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
  float* state[kStates + 1];
  bool vectors = vectors_at(gradient) && vectors_at(weight) && vectors_at(master);
#pragma unroll
  for (int k = 0; k < kStates; ++k) {
    state[k] = flat.state[k] + range.state;
    vectors = vectors && vectors_at(state[k]);
  }
  const GradientScale scale = gradient_scale(*step);
  const Prepared<Rule> how = prepared[index];
  Rule::visit(how.op, how.variant, [&](const auto& op) {
    for_each_in_part(range, vectors, [&](std::int64_t i, auto n) {
      const auto g = cuda::load<n()>(gradient + i);
      auto w = cuda::load<n()>(master + i);
      Vec<float, n()> s[kStates + 1];
#pragma unroll
      for (int k = 0; k < kStates; ++k) s[k] = cuda::load<n()>(state[k] + i);
      [[maybe_unused]] Vec<W, n()> copy;
#pragma unroll
      for (int j = 0; j < n(); ++j) {
        const float unscaled = scale(cuda::widen(g, j));
        if constexpr (kStates == 0) op(unscaled, w[j]);
        if constexpr (kStates == 1) op(unscaled, w[j], s[0][j]);
        if constexpr (kStates == 2) op(unscaled, w[j], s[0][j], s[1][j]);
        if constexpr (!std::is_same_v<W, float>) copy[j] = W(w[j]);
      }
      cuda::store<n()>(master + i, w);
#pragma unroll
      for (int k = 0; k < kStates; ++k) cuda::store<n()>(state[k] + i, s[k]);
      if constexpr (!std::is_same_v<W, float>) cuda::store<n()>(weight + i, copy);
    });
  });
}

/// Calls f.operator()<G, W>() with the types of gradients and compute copy; W is float where there is none.
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

template <class Rule, class... State>
void run(const CudaContext& context, const char* name, const UpdateTable& table,
         std::span<const typename Rule::Group> groups, const State&... state) {
  if (table.count == 0) return;
  const Scratch memory = context.scratch(static_cast<std::size_t>(table.count) * sizeof(Prepared<Rule>));
  auto* prepared = memory.as<Prepared<Rule>>();
  auto* steps = table.steps.data<std::int64_t>();
  cuda::launch(context,
               {"prepare_update", static_cast<unsigned>((table.count + kThreads - 1) / kThreads), kThreads},
               prepare<Rule>, ranges_of(table), table.count, steps, context.step(),
               Groups<typename Rule::Group>(groups), prepared);
  dispatch_update(table, [&]<class G, class W>() {
    const Flat<G, W, Rule::kStates> flat{table.gradients.data<G>(),
                                         table.weights.defined() ? table.weights.data<W>() : nullptr,
                                         table.masters.data<float>(),
                                         {state.template data<float>()...}};
    cuda::launch(context, {name, parts_of(table), kThreads}, update<Rule, G, W>, ranges_of(table), prepared,
                 context.step(), flat, steps);
  });
}

}  // namespace

template <>
void sgd_update(CudaContext& context, const UpdateTable& table, std::span<const SgdGroup> groups,
                const Tensor& momentum) {
  if (momentum.defined()) return run<MomentumRule>(context, "sgd_update", table, groups, momentum);
  run<SgdRule>(context, "sgd_update", table, groups);
}

template <>
void adam_update(CudaContext& context, const UpdateTable& table, std::span<const AdamGroup> groups,
                 const Tensor& first_moment, const Tensor& second_moment) {
  run<AdamRule>(context, "adam_update", table, groups, first_moment, second_moment);
}

// Sums of squares ------------------------------------------------------------------------------------------

namespace {

/// In double: finite f32 values cannot overflow it, and what is not finite makes the sum so.
template <class T>
__device__ __forceinline__ double sum_of_squares(const T* __restrict__ values, std::int64_t n) {
  constexpr int V = kVec<T>;
  double sum = 0;
  std::int64_t single = 0;
  if (reinterpret_cast<std::uintptr_t>(values) % 16 == 0) {
    single = n / V * V;
#pragma unroll 2
    for (std::int64_t i = std::int64_t{threadIdx.x} * V; i < single; i += kThreads * V) {
      const auto in = cuda::load<V>(values + i);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const double value = cuda::widen(in, k);
        sum = std::fma(value, value, sum);
      }
    }
  }
  for (std::int64_t i = single + threadIdx.x; i < n; i += kThreads) {
    const double value = float(values[i]);
    sum = std::fma(value, value, sum);
  }
  return cuda::group_sum<kThreads>(sum);
}

// Where a range's values begin.
struct InGradients {
  __device__ static std::int64_t of(const UpdateRange& range) { return range.gradients; }
};
struct InMasters {
  __device__ static std::int64_t of(const UpdateRange& range) { return range.masters; }
};

/// Of every range. Reads its values once.
template <class Where, class T>
__global__ void __launch_bounds__(kThreads)
    squares_of_ranges(const T* values, const UpdateRange* ranges, double* partial) {
  const UpdateRange range = ranges[blockIdx.x];
  const double sum = sum_of_squares(values + Where::of(range), range.count);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// Of every kUpdateChunk of n values.
template <class T>
__global__ void __launch_bounds__(kThreads)
    squares_of_chunks(const T* values, std::int64_t n, double* partial) {
  const std::int64_t begin = blockIdx.x * kUpdateChunk;
  const double sum = sum_of_squares(values + begin, n - begin < kUpdateChunk ? n - begin : kUpdateChunk);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// Calls use(total) once.
template <class Use>
__global__ void __launch_bounds__(kThreads)
    total_squares(const double* partial, std::int64_t count, Use use) {
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
  sum = cuda::group_sum<kThreads>(sum);
  if (threadIdx.x == 0) use(sum);
}

struct Measure {
  StepState* step;
  GradientLimits limits;
  __device__ void operator()(double squares) const { measure(*step, squares, limits); }
};
struct StoreFactor {
  float eps;
  float* to;
  __device__ void operator()(double squares) const { *to = normalizing_factor(squares, eps); }
};
struct StoreGrowth {
  MuonStep muon;
  float* to;
  __device__ void operator()(double squares) const { *to = muon_growth(muon, squares); }
};

}  // namespace

template <>
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

template <> void set_learning_rates(CudaContext& context, const RateWindow& window) {
  cuda::launch(context, {"set_learning_rates", 1, 32}, choose_rates, context.step(), window);
}

template <> void loss_seed(CudaContext& context, const Tensor& value, float weight) {
  cuda::launch(context, {"loss_seed", 1, 1}, seed_of_loss, context.step(), weight, value.data<float>());
}

template <> void finish_step(CudaContext& context, const LossScaling& scaling, const OutlierGuard& outliers) {
  cuda::launch(context, {"finish_step", 1, 1}, end_of_step, context.step(), scaling, outliers);
}

// Flat tensors ---------------------------------------------------------------------------------------------

namespace {

/// f.at<V>(i) for all n elements, V of them from i on; nothing where f.begin() says so.
template <int V, class F> __global__ void __launch_bounds__(kThreads) for_each(std::int64_t n, F f) {
  if (!f.begin()) return;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * V, single = n - n % V;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (std::int64_t i = thread * V; i < single; i += step) f.template at<V>(i);
  if (single + thread < n) f.template at<1>(single + thread);
}

template <class T, class F, class... P>
void launch_flat(const CudaContext& context, const char* name, std::int64_t n, const F& f,
                 const P*... pointers) {
  const bool vectors = cuda::aligned<kVec<T>>(pointers...);
  const std::int64_t steps = vectors ? (n + kVec<T> - 1) / kVec<T> : n;
  cuda::launch(context, {name, cuda::blocks_for(context, steps, kThreads), kThreads},
               vectors ? for_each<kVec<T>, F> : for_each<1, F>, n, f);
}

struct CopyIfSkipped {
  const StepState* step;
  const float* from;
  float* to;
  __device__ bool begin() const { return step->skips(); }
  template <int V> __device__ void at(std::int64_t i) const {
    cuda::store<V>(to + i, cuda::load<V>(from + i));
  }
};

struct MoveAverage {
  const StepState* step;
  double decay;
  bool warm_up;
  const float* x;
  float* average;
  AverageOp op{};

  __device__ bool begin() {
    op = average_op(*step, decay, warm_up);
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
  __device__ bool begin() const { return true; }
  template <int V> __device__ void at(std::int64_t i) const {
    const auto left = cuda::load<V>(a + i), right = cuda::load<V>(b + i);
    cuda::store<V>(a + i, right);
    cuda::store<V>(b + i, left);
  }
};

}  // namespace

template <> void copy_if_skipped(CudaContext& context, const Tensor& from, const Tensor& to) {
  const auto* source = reinterpret_cast<const float*>(from.raw_data());
  auto* target = reinterpret_cast<float*>(to.raw_data());
  const auto words = static_cast<std::int64_t>(to.bytes() / sizeof(float));
  launch_flat<float>(context, "copy_if_skipped", words, CopyIfSkipped{context.step(), source, target},
                     source, target);
}

template <>
void average_update(CudaContext& context, const Tensor& x, const Tensor& average, double decay,
                    bool warm_up) {
  const float* in = x.data<float>();
  float* out = average.data<float>();
  launch_flat<float>(context, "average_update", x.numel(),
                     MoveAverage{context.step(), decay, warm_up, in, out}, in, out);
}

template <> void exchange(CudaContext& context, const Tensor& a, const Tensor& b) {
  float *left = a.data<float>(), *right = b.data<float>();
  launch_flat<float>(context, "exchange", a.numel(), Exchange{left, right}, left, right);
}

// Muon -----------------------------------------------------------------------------------------------------

namespace {

/// The momentum of a matrix, and what is orthogonalised: sizeof(G) + 8 + sizeof(X) bytes an element.
template <class G, class X>
__global__ void __launch_bounds__(kThreads)
    move_momentum(const UpdateRange* ranges, const StepState* step, MuonMomentumOp op, const G* gradients,
                  float* momentum, X* x) {
  if (step->skips()) return;
  const UpdateRange range = ranges[blockIdx.x / kParts];
  const G* __restrict__ gradient = gradients + range.gradients;
  float* __restrict__ state = momentum + range.state;
  X* __restrict__ out = x + (range.state - ranges[0].state);
  const GradientScale scale = gradient_scale(*step);
  const bool vectors = vectors_at(gradient) && vectors_at(state) && vectors_at(out);
  for_each_in_part(range, vectors, [&](std::int64_t i, auto n) {
    const auto g = cuda::load<n()>(gradient + i);
    auto b = cuda::load<n()>(state + i);
    Vec<X, n()> direction;
#pragma unroll
    for (int j = 0; j < n(); ++j) direction[j] = X(op(scale(cuda::widen(g, j)), b[j]));
    cuda::store<n()>(state + i, b);
    cuda::store<n()>(out + i, direction);
  });
}

/// The matrix moved along x: 8 + sizeof(X) bytes an element, and the compute copy.
template <class X, class W>
__global__ void __launch_bounds__(kThreads)
    apply_direction(const UpdateRange* ranges, const StepState* step, MuonStep muon, const float* growth,
                    const X* x, float* masters, W* weights, std::int64_t* steps) {
  if (step->skips()) return;
  const UpdateRange range = ranges[blockIdx.x / kParts];
  if (blockIdx.x % kParts == 0 && threadIdx.x == 0 && range.last) ++steps[range.member];
  const MuonApplyOp op(muon, step->learning_rate[range.group], range.decay, growth ? *growth : 1.0f);
  const X* __restrict__ direction = x + (range.state - ranges[0].state);
  float* __restrict__ master = masters + range.masters;
  W* __restrict__ weight = weights ? weights + range.weights : nullptr;
  const bool vectors = vectors_at(direction) && vectors_at(master) && vectors_at(weight);
  for_each_in_part(range, vectors, [&](std::int64_t i, auto n) {
    const auto d = cuda::load<n()>(direction + i);
    auto w = cuda::load<n()>(master + i);
    [[maybe_unused]] Vec<W, n()> copy;
#pragma unroll
    for (int j = 0; j < n(); ++j) {
      op(cuda::widen(d, j), w[j]);
      if constexpr (!std::is_same_v<W, float>) copy[j] = W(w[j]);
    }
    cuda::store<n()>(master + i, w);
    if constexpr (!std::is_same_v<W, float>) cuda::store<n()>(weight + i, copy);
  });
}

template <class T> struct ScaleBy {
  const float* factor;
  T* x;
  float by = 1;

  __device__ bool begin() {
    by = *factor;
    return true;
  }
  template <int V> __device__ void at(std::int64_t i) const {
    auto values = cuda::load<V>(x + i);
#pragma unroll
    for (int k = 0; k < V; ++k) values[k] = T(float(values[k]) * by);
    cuda::store<V>(x + i, values);
  }
};

/// Element i of an n x n matrix is on the diagonal where n + 1 divides i.
template <class T> struct ScaleAddIdentity {
  float alpha, beta;
  const T* x;
  T* y;
  cuda::WideDivider next;  // n + 1

  __device__ bool begin() const { return true; }
  template <int V> __device__ void at(std::int64_t i) const {
    auto values = cuda::load<V>(x + i);
    std::int64_t past = next.divide(i).remainder;
#pragma unroll
    for (int k = 0; k < V; ++k, past = past + 1 == next.divisor ? 0 : past + 1) {
      const float value = float(values[k]);
      values[k] = T(past == 0 ? std::fma(alpha, value, beta) : alpha * value);
    }
    cuda::store<V>(y + i, values);
  }
};

// The matrices Muon works on are f32 or bf16.
template <class F> void dispatch_matrix(DType dtype, const F& f) {
  if (dtype == DType::bf16) return f.template operator()<BFloat16>();
  f.template operator()<float>();
}

}  // namespace

template <>
void muon_momentum(CudaContext& context, const UpdateTable& matrix, float mu, bool nesterov,
                   const Tensor& momentum, const Tensor& x) {
  if (matrix.count == 0) return;
  dispatch_floating(matrix.gradients.dtype(), "muon", [&]<class G>() {
    if constexpr (!std::is_same_v<G, double>) {
      dispatch_matrix(x.dtype(), [&]<class X>() {
        cuda::launch(context, {"muon_momentum", parts_of(matrix), kThreads}, move_momentum<G, X>,
                     ranges_of(matrix), context.step(), MuonMomentumOp(mu, nesterov),
                     matrix.gradients.data<G>(), momentum.data<float>(), x.data<X>());
      });
    }
  });
}

template <> void normalize(CudaContext& context, const Tensor& x, float eps) {
  const std::int64_t n = x.numel(), chunks = (n + kUpdateChunk - 1) / kUpdateChunk;
  const Scratch memory = context.scratch(static_cast<std::size_t>(chunks + 1) * sizeof(double));
  auto* partial = memory.as<double>();
  auto* factor = reinterpret_cast<float*>(partial + chunks);
  dispatch_matrix(x.dtype(), [&]<class T>() {
    T* values = x.data<T>();
    cuda::launch(context, {"normalize_squares", static_cast<unsigned>(chunks), kThreads},
                 squares_of_chunks<T>, values, n, partial);
    cuda::launch(context, {"normalize_finish", 1, kThreads}, total_squares<StoreFactor>, partial, chunks,
                 StoreFactor{eps, factor});
    launch_flat<T>(context, "normalize", n, ScaleBy<T>{factor, values}, values);
  });
}

template <>
void scale_add_identity(CudaContext& context, const Tensor& x, float alpha, float beta, const Tensor& y) {
  dispatch_matrix(x.dtype(), [&]<class T>() {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    launch_flat<T>(context, "scale_add_identity", x.numel(),
                   ScaleAddIdentity<T>{alpha, beta, in, out, cuda::WideDivider(x.dim(0) + 1)}, in, out);
  });
}

template <>
void muon_apply(CudaContext& context, const UpdateTable& matrix, const MuonStep& muon, const Tensor& x) {
  if (matrix.count == 0) return;
  const Scratch memory = context.scratch(static_cast<std::size_t>(matrix.count + 1) * sizeof(double));
  auto* partial = memory.as<double>();
  float* growth = nullptr;
  if (muon.weight_norm > 0) {
    growth = reinterpret_cast<float*>(partial + matrix.count);
    cuda::launch(context, {"muon_squares", static_cast<unsigned>(matrix.count), kThreads},
                 squares_of_ranges<InMasters, float>, matrix.masters.data<float>(), ranges_of(matrix),
                 partial);
    cuda::launch(context, {"muon_finish", 1, kThreads}, total_squares<StoreGrowth>, partial, matrix.count,
                 StoreGrowth{muon, growth});
  }
  const DType copy = matrix.weights.defined() ? matrix.weights.dtype() : DType::f32;
  dispatch_floating(copy, "muon", [&]<class W>() {
    if constexpr (!std::is_same_v<W, double>) {
      dispatch_matrix(x.dtype(), [&]<class X>() {
        cuda::launch(
            context, {"muon_apply", parts_of(matrix), kThreads}, apply_direction<X, W>, ranges_of(matrix),
            context.step(), muon, growth, x.data<X>(), matrix.masters.data<float>(),
            matrix.weights.defined() ? matrix.weights.data<W>() : nullptr, matrix.steps.data<std::int64_t>());
      });
    }
  });
}

}  // namespace athanor::kernels
