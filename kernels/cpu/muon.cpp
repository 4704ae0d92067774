#include "kernels/muon.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/update_range.h"
#include "kernels/detail/newton_schulz.h"
#include "kernels/muon_ops.h"
#include "kernels/scratch.h"

namespace athanor::kernels {

using cpu::for_each_range;
using cpu::ranges_of;
using cpu::sum_of_squares;

namespace {

// Calls f(chunk) for kUpdateChunk elements of a matrix at a time, over a batch of matrices.
struct MatrixChunk {
  std::int64_t index;  // among all chunks of the batch
  std::int64_t matrix, begin, count;
};
struct MatrixChunks {
  std::int64_t matrices, size;  // elements of each
  explicit MatrixChunks(const Tensor& x) : matrices(x.dim(0)), size(x.dim(1) * x.dim(2)) {}

  std::int64_t each() const { return (size + kUpdateChunk - 1) / kUpdateChunk; }
  template <class F> void for_each(CpuContext& context, const F& f) const {
    const std::int64_t chunks = each(), most = std::clamp<std::int64_t>(size, 1, kUpdateChunk);
    cpu::for_each_task<false>(context, matrices * chunks, cpu::grain_of(most), [&](std::int64_t i) {
      const std::int64_t at = i % chunks * kUpdateChunk;
      f(MatrixChunk{i, i / chunks, at, std::min(kUpdateChunk, size - at)});
    });
  }
};

// Sums each matrix's partial sums in chunk order, and stores use(sum) in to[matrix].
template <class Use>
void total(const double* partial, std::int64_t matrices, std::int64_t chunks, float* to, const Use& use) {
  for (std::int64_t matrix = 0; matrix < matrices; ++matrix) {
    double sum = 0;
    for (std::int64_t i = 0; i < chunks; ++i) sum += partial[matrix * chunks + i];
    to[matrix] = use(sum);
  }
}

}  // namespace

void muon_momentum(CpuContext& context, const UpdateTable& matrices, float mu, bool nesterov, Out momentum,
                   Out x) {
  if (context.step()->skips() || matrices.count == 0) return;
  const GradientScale scale = gradient_scale(*context.step());
  const MuonMomentumOp op(mu, nesterov);
  const std::int64_t first = ranges_of(matrices).front().start;
  float* state = momentum.data<float>();
  dispatch_floating(matrices.gradients.dtype(), "muon", [&]<class G>() {
    dispatch_matrix(x.dtype(), [&]<class X>() {
      for_each_range(context, matrices, [&](const UpdateRange& at) {
        const G* __restrict gradient = matrices.gradients.data<G>() + at.gradients;
        float* __restrict b = state + at.state;
        X* __restrict out = x.data<X>() + (at.start - first);
        cpu::vectorize([=] {
          for (std::int64_t i = 0; i < at.count; ++i) out[i] = X(op(scale(float(gradient[i])), b[i]));
        });
      });
    });
  });
}

void normalize(CpuContext& context, Out x, float eps) {
  const MatrixChunks chunks(x);
  const auto partials = static_cast<std::size_t>(chunks.matrices * chunks.each());
  const Scratch scratch =
      context.scratch(partials * sizeof(double) + static_cast<std::size_t>(chunks.matrices) * sizeof(float));
  double* partial = scratch.as<double>();
  auto* factor = reinterpret_cast<float*>(partial + partials);
  dispatch_matrix(x.dtype(), [&]<class T>() {
    T* values = x.data<T>();
    chunks.for_each(context, [&](const MatrixChunk& at) {
      partial[at.index] = sum_of_squares(values + at.matrix * chunks.size + at.begin, at.count);
    });
    total(partial, chunks.matrices, chunks.each(), factor,
          [=](double squares) { return normalizing_factor(squares, eps); });
    chunks.for_each(context, [&](const MatrixChunk& at) {
      T* __restrict to = values + at.matrix * chunks.size + at.begin;
      const float by = factor[at.matrix];
      cpu::vectorize([=] {
        for (std::int64_t i = 0; i < at.count; ++i) to[i] = T(float(to[i]) * by);
      });
    });
  });
}

namespace {

/// y = alpha x + beta I for every matrix of x and y [matrices, n, n]. y may be x.
void scale_add_identity(const CpuContext& context, const Tensor& x, float alpha, float beta,
                        const Tensor& y) {
  dispatch_matrix(x.dtype(), [&]<class T>() {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    const std::int64_t n = x.dim(1);
    cpu::for_each_task<false>(context, x.dim(0) * n, cpu::grain_of(n), [&](std::int64_t row) {
      const T* from = in + row * n;
      T* to = out + row * n;
      const float diagonal = std::fma(alpha, float(from[row % n]), beta);
      cpu::vectorize([&] {
        for (std::int64_t i = 0; i < n; ++i) to[i] = T(alpha * float(from[i]));
      });
      to[row % n] = T(diagonal);
    });
  });
}

}  // namespace

// As (a I + A (b I + c A)) x: products here only multiply.
void newton_schulz(CpuContext& context, const Tensor& x, const std::array<float, 3>& coefficients, Out gram,
                   Out factor, Out next) {
  const auto [a, b, c] = coefficients;
  const detail::Oriented from(x);
  const Tensor inner = next.view_as_strided(gram.shape(), gram.strides(), 0);  // until there is a result
  detail::multiply(context, from.wide, from.tall, gram);
  scale_add_identity(context, gram, c, b, inner);
  detail::multiply(context, gram, inner, factor);
  scale_add_identity(context, factor, 1, a, factor);
  detail::multiply(context, from.is_tall ? x : factor, from.is_tall ? factor : x, next);
}

void muon_apply(CpuContext& context, const UpdateTable& table, const MuonStep& muon, const Tensor& x) {
  const StepState& step = *context.step();
  if (step.skips() || table.count == 0) return;
  const std::span<const UpdateRange> ranges = ranges_of(table);
  const std::int64_t first = ranges.front().start, matrices = x.dim(0), chunks = table.count / matrices;
  float* masters = table.masters.data<float>();
  const bool grows = muon.weight_norm > 0;
  const Scratch scratch = context.scratch(
      grows ? ranges.size() * sizeof(double) + static_cast<std::size_t>(matrices) * sizeof(float) : 0);
  double* partial = scratch.as<double>();
  float* growth = nullptr;
  if (grows) {
    growth = reinterpret_cast<float*>(partial + ranges.size());
    for_each_range(context, table, [&](const UpdateRange& at) {
      partial[&at - ranges.data()] = sum_of_squares(masters + at.masters, at.count);
    });
    total(partial, matrices, chunks, growth, [&](double squares) { return muon_growth(muon, squares); });
  }
  const DType copy = table.weights.defined() ? table.weights.dtype() : DType::f32;
  dispatch_floating(copy, "muon", [&]<class W>() {
    dispatch_matrix(x.dtype(), [&]<class X>() {
      W* weights = std::is_same_v<W, float> ? nullptr : table.weights.data<W>();
      cpu::with_average(context, table, [&](const auto& move, float* averages) {
        for_each_range(context, table, [&](const UpdateRange& at) {
          const float grow = grows ? growth[(&at - ranges.data()) / chunks] : 1.0f;
          const MuonApplyOp op(muon, at.learning_rate(step), at.decay, grow);
          const auto apply = [=](float direction, float& w) { op(direction, w); };
          cpu::update_range(apply, cpu::Unscaled(), move, at.count, x.data<X>() + (at.start - first),
                            weights ? weights + at.weights : nullptr, masters + at.masters,
                            averages ? averages + at.averages : nullptr);
        });
      });
    });
  });
  cpu::count_updates(table);
}

}  // namespace athanor::kernels
