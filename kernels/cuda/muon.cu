#include "kernels/cuda/context.h"
#include "kernels/cuda/update_range.h"
#include "kernels/detail/newton_schulz.h"
#include "kernels/muon.h"
#include "kernels/muon_ops.h"
#include "kernels/scratch.h"

// All matrices of a batch in one launch each. Norms: a sum for every chunk, then one block per matrix.

namespace athanor::kernels {
namespace {

constexpr int kThreads = kUpdateThreads;

/// Of every kUpdateChunk of matrices of n values; `chunks` each.
template <class T>
__global__ void __launch_bounds__(kThreads)
    squares_of_chunks(const T* values, std::int64_t n, unsigned chunks, double* partial) {
  const std::int64_t matrix = blockIdx.x / chunks, begin = blockIdx.x % chunks * kUpdateChunk;
  const double sum =
      sum_of_squares(values + matrix * n + begin, n - begin < kUpdateChunk ? n - begin : kUpdateChunk);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

struct StoreFactor {
  float eps;
  float* to;
  __device__ void operator()(double squares, unsigned matrix) const {
    to[matrix] = normalizing_factor(squares, eps);
  }
};
struct StoreGrowth {
  MuonStep muon;
  float* to;
  __device__ void operator()(double squares, unsigned matrix) const {
    to[matrix] = muon_growth(muon, squares);
  }
};

/// The momentum of matrices, and what is orthogonalised: sizeof(G) + 8 + sizeof(X) bytes an element.
template <class G, class X>
__global__ void __launch_bounds__(kThreads)
    move_momentum(const UpdateRange* ranges, const StepState* step, MuonMomentumOp op, const G* gradients,
                  float* momentum, X* x) {
  if (step->skips()) return;
  const UpdateRange range = ranges[blockIdx.x / kParts];
  const G* __restrict__ gradient = gradients + range.gradients;
  float* __restrict__ state = momentum + range.state;
  X* __restrict__ out = x + (range.start - ranges[0].start);
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

/// Matrices moved along x: 8 + sizeof(X) bytes an element, 8 more with averages, and the compute copy.
/// `growth` holds one factor per matrix, each of `chunks` ranges; or is null.
template <class X, class W, bool kAverages>
__global__ void __launch_bounds__(kThreads)
    apply_direction(const UpdateRange* ranges, const StepState* step, MuonStep muon, const float* growth,
                    unsigned chunks, const X* x, Flat<float, W, 0> flat, AverageRule rule,
                    std::int64_t* steps) {
  if (step->skips()) return;
  AverageOp move{};
  if constexpr (kAverages) move = average_op_of_block(*step, rule);
  const unsigned index = blockIdx.x / kParts;
  const UpdateRange range = ranges[index];
  if (blockIdx.x % kParts == 0 && threadIdx.x == 0 && range.last) ++steps[range.member];
  const MuonApplyOp op(muon, range.learning_rate(*step), range.decay, growth ? growth[index / chunks] : 1.0f);
  const X* __restrict__ direction = x + (range.start - ranges[0].start);
  float* __restrict__ master = flat.master + range.masters;
  float* __restrict__ average = kAverages ? flat.average + range.averages : nullptr;
  W* __restrict__ weight = flat.weight ? flat.weight + range.weights : nullptr;
  const bool vectors =
      vectors_at(direction) && vectors_at(master) && vectors_at(weight) && vectors_at(average);
  for_each_in_part(range, vectors, [&](std::int64_t i, auto n) {
    const auto d = cuda::load<n()>(direction + i);
    auto w = cuda::load<n()>(master + i);
    [[maybe_unused]] Vec<float, n()> a;
    if constexpr (kAverages) a = cuda::load<n()>(average + i);
    [[maybe_unused]] Vec<W, n()> copy;
#pragma unroll
    for (int j = 0; j < n(); ++j) {
      op(cuda::widen(d, j), w[j]);
      if constexpr (!std::is_same_v<W, float>) copy[j] = W(w[j]);
      if constexpr (kAverages) move(w[j], a[j]);
    }
    cuda::store<n()>(master + i, w);
    if constexpr (kAverages) cuda::store<n()>(average + i, a);
    if constexpr (!std::is_same_v<W, float>) cuda::store<n()>(weight + i, copy);
  });
}

template <class T> struct ScaleBy {
  const float* factor;
  T* x;
  float by = 1;

  __device__ bool begin(std::int64_t matrix, std::int64_t n) {
    by = factor[matrix];
    x += matrix * n;
    return true;
  }
  template <int V> __device__ void at(std::int64_t i) const {
    auto values = cuda::load<V>(x + i);
#pragma unroll
    for (int k = 0; k < V; ++k) values[k] = T(float(values[k]) * by);
    cuda::store<V>(x + i, values);
  }
};

}  // namespace

void muon_momentum(CudaContext& context, const UpdateTable& matrices, float mu, bool nesterov, Out momentum,
                   Out x) {
  if (matrices.count == 0) return;
  dispatch_floating(matrices.gradients.dtype(), "muon", [&]<class G>() {
    if constexpr (!std::is_same_v<G, double>) {
      dispatch_matrix(x.dtype(), [&]<class X>() {
        cuda::launch(context, {"muon_momentum", parts_of(matrices), kThreads}, move_momentum<G, X>,
                     ranges_of(matrices), context.step(), MuonMomentumOp(mu, nesterov),
                     matrices.gradients.data<G>(), momentum.data<float>(), x.data<X>());
      });
    }
  });
}

void normalize(CudaContext& context, Out x, float eps) {
  if (x.numel() == 0) return;
  const std::int64_t matrices = x.dim(0), n = x.dim(1) * x.dim(2), chunks = update_chunks(n);
  const Scratch memory = context.scratch(static_cast<std::size_t>(matrices * (chunks + 1)) * sizeof(double));
  auto* partial = memory.as<double>();
  auto* factor = reinterpret_cast<float*>(partial + matrices * chunks);
  dispatch_matrix(x.dtype(), [&]<class T>() {
    T* values = x.data<T>();
    cuda::launch(context, {"normalize_squares", static_cast<unsigned>(matrices * chunks), kThreads},
                 squares_of_chunks<T>, values, n, static_cast<unsigned>(chunks), partial);
    cuda::launch(context, {"normalize_finish", static_cast<unsigned>(matrices), kThreads},
                 total_squares<StoreFactor>, partial, chunks, StoreFactor{eps, factor});
    launch_vectors<T>(context, "normalize", matrices, n, ScaleBy<T>{factor, values}, values);
  });
}

void newton_schulz(CudaContext& context, const Tensor& x, const std::array<float, 3>& coefficients, Out gram,
                   Out factor, Out next) {
  detail::newton_schulz_by_sums(context, x, coefficients, gram, factor, next);
}

void muon_apply(CudaContext& context, const UpdateTable& table, const MuonStep& muon, const Tensor& x) {
  if (table.count == 0) return;
  const std::int64_t matrices = x.dim(0), chunks = table.count / matrices;
  const bool grows = muon.weight_norm > 0;
  const Scratch memory =
      context.scratch(grows ? static_cast<std::size_t>(table.count + matrices) * sizeof(double) : 0);
  float* growth = nullptr;
  if (grows) {
    auto* partial = memory.as<double>();
    growth = reinterpret_cast<float*>(partial + table.count);
    cuda::launch(context, {"muon_squares", static_cast<unsigned>(table.count), kThreads},
                 squares_of_ranges<InMasters, float>, table.masters.data<float>(), ranges_of(table), partial);
    cuda::launch(context, {"muon_finish", static_cast<unsigned>(matrices), kThreads},
                 total_squares<StoreGrowth>, partial, chunks, StoreGrowth{muon, growth});
  }
  const bool averages = table.averages.defined();
  const DType copy = table.weights.defined() ? table.weights.dtype() : DType::f32;
  dispatch_floating(copy, "muon", [&]<class W>() {
    if constexpr (!std::is_same_v<W, double>) {
      const Flat<float, W, 0> flat{nullptr,
                                   table.weights.defined() ? table.weights.data<W>() : nullptr,
                                   table.masters.data<float>(),
                                   averages ? table.averages.data<float>() : nullptr,
                                   {}};
      dispatch_matrix(x.dtype(), [&]<class X>() {
        cuda::launch(context, {"muon_apply", parts_of(table), kThreads},
                     averages ? apply_direction<X, W, true> : apply_direction<X, W, false>, ranges_of(table),
                     context.step(), muon, growth, static_cast<unsigned>(chunks), x.data<X>(), flat,
                     table.average, table.steps.data<std::int64_t>());
      });
    }
  });
}

}  // namespace athanor::kernels
