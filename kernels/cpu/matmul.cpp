#include "kernels/matmul.h"

#include <array>

#include "kernels/copy.h"
#include "kernels/cpu/activate_packed.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/epilogue.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/primitive_cache.h"
#include "kernels/detail/matmul_plan.h"
#include "kernels/packed_weights.h"
#include "kernels/scratch.h"

// Matrix products: finds an implementation in kProducts, runs it for each product of a batch, and does what
// it leaves to do.

namespace athanor {
namespace cpu {

extern const Implementation kMatmulOneDnnPacked, kMatmulOneDnn, kMatmulEigen;

}  // namespace cpu

namespace kernels {
namespace {

using cpu::Code;
using cpu::PrimitiveKey;

/// Smaller products are Eigen's.
bool prefers_onednn(const PrimitiveKey& key) {
  return key.in != DType::f32 || key.sizes[0] * key.sizes[1] * key.sizes[2] > 16 * 1024;
}

/// In the order in which `automatic` asks them. The last one fits everything.
constexpr cpu::ListEntry kProducts[] = {
    {&cpu::kMatmulOneDnnPacked, prefers_onednn},
    {&cpu::kMatmulOneDnn, prefers_onednn},
    {&cpu::kMatmulEigen},
};

PrimitiveKey key_of(const CpuContext& context, DType in, DType out, const Tensor& bias, Activation activation,
                    const std::array<std::int64_t, 16>& sizes) {
  PrimitiveKey key;
  key.op = PrimitiveKey::Op::matmul;
  key.in = in;
  key.out = out;
  key.bias = bias.defined();
  key.fused.activation = activation;
  key.threads = cpu::threads_for(context, sizes[0] * sizes[1] * sizes[2]);
  key.sizes = sizes;
  return key;
}

/// Where the factors and the result of a product of a batch are.
struct Offsets {
  std::int64_t a = 0, b = 0, y = 0;
};

Offsets offsets_of(const std::array<Batches::Axis, kMaxRank>& axes, int rank, std::int64_t index) {
  Offsets at;
  for (int i = rank - 1; i >= 0; --i) {
    const std::int64_t step = index % axes[i].size;
    index /= axes[i].size;
    at.a += step * axes[i].a;
    at.b += step * axes[i].b;
    at.y += step * axes[i].y;
  }
  return at;
}

// y = relu(bias), for products without terms. The rows of y are dense.
template <class T, class Y>
void without_products(const T* bias, bool relu, std::int64_t rows, std::int64_t n, Y* y) {
  using A = Accumulate<T>;
  cpu::dispatch_fused(relu, [&]<class Op>() {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < n; ++j) y[i * n + j] = Y(Op::forward(bias ? A(bias[j]) : A(0)));
    }
  });
}

}  // namespace

void matmul(CpuContext& context, MatmulImpl impl, const Tensor& a, const Tensor& b, const Tensor& bias,
            Activation activation, Out y, Write write) {
  ATH_CHECK(impl != MatmulImpl::mma && impl != MatmulImpl::wgmma,
            "matmul: MatmulImpl::{} is CUDA code, but the tensors are on the CPU", name_of(impl));
  if (y.numel() == 0) return;
  const bool relu = activation == Activation::relu, accumulate = write == Write::accumulate;
  if (activation != Activation::none && !relu) {
    matmul(context, impl, a, b, bias, Activation::none, y, write);
    return activate(context, activation, y);
  }
  if (impl == MatmulImpl::vendor && !cpu::has_onednn())
    athanor::detail::fail<BackendError>("matmul: this build has no oneDNN; use MatmulImpl::automatic");
  const MatmulPlan plan(a, b, y);
  const auto& [size, a_row, a_col, b_row, b_col, y_row, batches] = plan;
  if (size.k == 0 || a.numel() == 0 || b.numel() == 0) {
    if (accumulate) return;
    return dispatch_floating(a.dtype(), "matmul", [&]<class T>() {
      const T* const offset = bias.defined() ? bias.data<T>() : nullptr;
      const std::int64_t n = plan.size.n, rows = y.numel() / n;
      if (y.dtype() == a.dtype()) return without_products(offset, relu, rows, n, y.data<T>());
      without_products(offset, relu, rows, n, y.data<Accumulate<T>>());
    });
  }
  const std::int64_t kept = Batches::count(batches.kept, batches.kept_rank),
                     summed = Batches::count(batches.summed, batches.summed_rank);
  if (summed > 1 && is_half(y.dtype())) {  // is rounded once
    const Tensor sums = Tensor::empty(y.shape(), {DType::f32, kCpu});
    matmul(context, impl == MatmulImpl::automatic ? MatmulImpl::reference : impl, a, b, bias, activation,
           sums, Write::overwrite);
    return accumulate ? add_into(context, sums, y) : copy(context, sums, y);
  }
  PrimitiveKey key = key_of(context, a.dtype(), y.dtype(), bias, activation,
                            {size.m, size.n, size.k, a_row, a_col, b_row, b_col, y_row});
  const auto find = [&](std::string_view name, bool add) {
    key.fused.accumulate = add;
    return cpu::find_code(context, kProducts, key, name);
  };
  const Code first = find(name_of(impl), accumulate),
             next = first && summed > 1 ? find(first.by->name, true) : first;
  if (!next && impl == MatmulImpl::automatic)
    return matmul(context, MatmulImpl::reference, a, b, bias, activation, y, write);
  if (!next)
    athanor::detail::fail<BackendError>(
        "matmul: oneDNN has no fast code for {} {} x {}; use MatmulImpl::automatic", a.dtype(), a.shape(),
        b.shape());
  const auto at = [](const Tensor& t, std::int64_t offset) {
    return t.raw_data() + offset * static_cast<std::int64_t>(size_of(t.dtype()));
  };
  for (std::int64_t i = 0; i < kept; ++i) {
    const Offsets outer = offsets_of(batches.kept, batches.kept_rank, i);
    for (std::int64_t s = 0; s < summed; ++s) {
      const Offsets inner = offsets_of(batches.summed, batches.summed_rank, s);
      (s == 0 ? first : next)
          .primitive->run(context, {at(a, outer.a + inner.a), at(b, outer.b + inner.b),
                                    bias.defined() ? bias.raw_data() : nullptr, at(y, outer.y)});
    }
  }
  if (first.fused.activation == Activation::none) activate(context, activation, y);
}

void linear_packed(CpuContext& context, const Tensor& x, const PackedWeights& w, Activation activation,
                   Out y) {
  if (y.numel() == 0) return;
  const AllocTag tag("workspace");
  const std::int64_t m = y.dim(0), n = y.dim(1), k = x.dim(1);
  PrimitiveKey key = key_of(context, x.dtype(), y.dtype(), w.bias(), activation, {m, n, k, k, 1, 1, k, n});
  key.fused.packed = true;
  Code code;
  if (k > 0 && prefers_onednn(key))
    code = cpu::find_code(context, kProducts, key, name_of(MatmulImpl::automatic));
  if (!code.fused.packed) {
    const Tensor transposed = w.plain().view_as_strided({k, n}, {1, k}, 0);
    return matmul(context, MatmulImpl::automatic, x, transposed, w.plain_bias(), activation, y,
                  Write::overwrite);
  }
  code.primitive->run(context, {x.raw_data(), w.in(context, code.primitive->layout()),
                                w.bias().defined() ? w.bias().raw_data() : nullptr, y.raw_data()});
  if (code.fused.activation == Activation::none) cpu::activate_packed(context, activation, y);
}

namespace {

// Rows are summed in fixed pieces, and pieces in order: the bits do not depend on the thread count.
constexpr std::int64_t kPiece = 256;
// Several pieces of short rows at a time: a single one would wait for each addition's latency.
constexpr int kTogether = 4, kLanes = 16;

/// Sums of the first kTogether pieces of x, each [kPiece, n], n <= kLanes, followed by kLanes more elements:
/// lanes from n on sum the data after a row, and are dropped.
template <class T, class A> void sum_short_rows(const T* x, std::int64_t n, A* sums) {
  A lanes[kTogether][kLanes] = {};
  for (std::int64_t i = 0; i < kPiece; ++i) {
    for (int piece = 0; piece < kTogether; ++piece) {
      const T* const row = x + (piece * kPiece + i) * n;
      for (int j = 0; j < kLanes; ++j) lanes[piece][j] += A(row[j]);
    }
  }
  for (int piece = 0; piece < kTogether; ++piece)
    for (std::int64_t j = 0; j < n; ++j) sums[piece * n + j] = lanes[piece][j];
}

}  // namespace

void column_sums(CpuContext& context, const Tensor& x, Out sums, Write write) {
  const std::int64_t n = sums.numel(), rows = n == 0 ? 0 : x.numel() / n;
  if (n == 0) return;
  dispatch_floating(x.dtype(), "column_sums", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t pieces = std::max<std::int64_t>(1, (rows + kPiece - 1) / kPiece);
    const Scratch scratch = context.scratch(static_cast<std::size_t>(pieces * n) * sizeof(A));
    A* const partial = scratch.as<A>();
    const T* const from = x.data<T>();
    const std::int64_t groups = (pieces + kTogether - 1) / kTogether;
    const std::int64_t grain = cpu::kGrain / (kTogether * kPiece * n) + 1;
    cpu::parallel_for(context, groups, grain, [&](std::int64_t begin, std::int64_t end) {
      begin *= kTogether;
      end = std::min(end * kTogether, pieces);
      cpu::vectorize_if<cpu::kFastType<T>>([&] {
        std::int64_t piece = begin;
        if (n <= kLanes) {
          const std::int64_t last = std::min(end, (rows - kLanes) / kPiece);
          for (; piece + kTogether <= last; piece += kTogether)
            sum_short_rows(from + piece * kPiece * n, n, partial + piece * n);
        }
        for (; piece < end; ++piece) {
          A* total = partial + piece * n;
          for (std::int64_t j = 0; j < n; ++j) total[j] = 0;
          const std::int64_t last = std::min(rows, (piece + 1) * kPiece);
          for (std::int64_t i = piece * kPiece; i < last; ++i) {
            const T* row = from + i * n;
            for (std::int64_t j = 0; j < n; ++j) total[j] += A(row[j]);
          }
        }
      });
    });
    const auto accumulate = [&]<class Y>() {
      Y* to = sums.data<Y>();
      for (std::int64_t j = 0; j < n; ++j) {
        A total = write == Write::accumulate ? A(to[j]) : A(0);
        for (std::int64_t piece = 0; piece < pieces; ++piece) total += partial[piece * n + j];
        to[j] = Y(total);
      }
    };
    if (sums.dtype() == x.dtype()) {
      accumulate.template operator()<T>();
    } else {
      accumulate.template operator()<A>();
    }
  });
}

}  // namespace kernels
}  // namespace athanor
