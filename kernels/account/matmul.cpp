#include "kernels/matmul.h"

#include "kernels/account/context.h"
#include "kernels/account/detail/product.h"
#include "kernels/account/flops.h"
#include "kernels/activate.h"
#include "kernels/copy.h"
#include "kernels/detail/matmul_plan.h"

namespace athanor::kernels {

using account::bytes;
using account::distinct_bytes;
using account::launch;

namespace {

/// Ours. c is what is added to the product, as in matmul_add(); y where the product is added to that.
void multiply(AccountContext& context, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c,
              const Tensor& y) {
  const MatmulPlan plan(a, b, y);
  GemmSize size = plan.size;
  const std::int64_t kept = Batches::count(plan.batches.kept, plan.batches.kept_rank),
                     summed = Batches::count(plan.batches.summed, plan.batches.summed_rank);
  if (cuda::multiplies_transposed(size.m, size.n)) std::swap(size.m, size.n);
  account::add_product(context, {.kernel = "matmul",
                                 .dtype = a.dtype(),
                                 .shape = {size.m, size.n, size.k, kept, summed, y.numel()},
                                 .read = distinct_bytes({a, b}),
                                 .once_read = bytes(bias) + bytes(c),
                                 .shared = distinct_bytes({a, b}) + bytes(c) - distinct_bytes({a, b, c}),
                                 .written = bytes(y)});
}

/// cuBLASLt adds a bias of y's dtype and beta c; it leaves activations to a kernel of ours, since its ReLU
/// hides NaN. f64 is ours.
void multiply(AccountContext& context, MatmulImpl impl, const Tensor& a, const Tensor& b, const Tensor& bias,
              Activation activation, const Tensor& c, const Tensor& y) {
  if (y.numel() == 0) return;
  const bool nothing = a.numel() == 0 || b.numel() == 0,
             ours = impl != MatmulImpl::automatic && impl != MatmulImpl::vendor;
  if (nothing || ours || !context.vendor || a.dtype() == DType::f64)
    return multiply(context, a, b, bias, c, y);
  const bool adds = bias.defined() && bias.dtype() == y.dtype();
  const std::int64_t k = a.shape()[a.rank() - 1];
  std::int64_t products = 1;
  for (int i = 0; i + 2 < y.rank(); ++i) products *= std::max(a.shape()[i], b.shape()[i]);
  context.add({.kernel = "matmul",
               .bytes_read = distinct_bytes({a, b, c}) + (adds ? bytes(bias) : 0),
               .bytes_written = bytes(y),
               .flops = product_flops(products * y.shape()[y.rank() - 2] * y.shape()[y.rank() - 1], k),
               .dtype = a.dtype(),
               .assumed = true});
  if (bias.defined() && !adds) add_into(context, bias, y);
  activate(context, activation, y);
}

}  // namespace

void matmul(AccountContext& context, MatmulImpl impl, const Tensor& a, const Tensor& b, const Tensor& bias,
            Activation activation, Out y, Write write) {
  multiply(context, impl, a, b, bias, activation, write == Write::accumulate ? y : Tensor(), y);
}
void matmul_add(AccountContext& context, MatmulImpl impl, const Tensor& a, const Tensor& b, float,
                const Tensor& c, float, Out y) {
  multiply(context, impl, a, b, {}, Activation::none, c, y);
}

/// Partial sums of tiles of columns, then their sums.
void column_sums(AccountContext& context, const Tensor& x, Out sums, Write write) {
  const std::int64_t n = sums.numel(), width = account::per_vector(x.dtype());
  if (n == 0) return;
  const cuda::ColumnCut cut =
      cuda::column_sums_cut(x.numel() / n, n, n % width == 0 ? static_cast<int>(width) : 1);
  const std::int64_t partial = cut.splits * n * account::wide(x);
  if (cut.splits > 0) launch(context, "column_sums", bytes(x), partial);
  launch(context, "column_sums", partial + (write == Write::accumulate ? bytes(sums) : 0), bytes(sums));
}

}  // namespace athanor::kernels
