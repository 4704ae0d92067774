#include "kernels/account/context.h"
#include "kernels/account/detail/cost.h"
#include "kernels/accumulate.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/cuda/reduce_plan.h"
#include "kernels/hash.h"
#include "kernels/loss.h"
#include "kernels/loss_ops.h"
#include "kernels/metrics.h"
#include "kernels/reduce.h"

// Kernels whose blocks leave partial results, which a second launch joins.

namespace athanor::kernels {

using account::wide;

namespace {

void total(const AccountContext& context, const char* kernel, std::int64_t blocks,
           std::initializer_list<AccountOperand> inputs, const AccountOperand& result) {
  context.launch(kernel, inputs, {blocks * 8});
  context.launch(kernel, {blocks * 8}, {result});
}
void exact_total(const AccountContext& context, const char* kernel, const Tensor& x) {
  total(context, kernel, cuda::exact_total_blocks(context.multiprocessors, x.numel()), {x}, 8);
}

void reduce(const AccountContext& context, const char* kernel, const Tensor& x, const Tensor& mean,
            const Tensor& y, Write write) {
  const Tensor before = write == Write::accumulate ? y : Tensor();
  const std::int64_t partial = x.numel() > 0 ? cuda::reduce_partial_sums(x, y) * 8 : 0;
  if (partial == 0) return context.launch(kernel, {x, mean, before}, {y});
  context.launch(kernel, {x, mean}, {partial});
  context.launch(kernel, {partial, before}, {y});
}

}  // namespace

void sum(AccountContext& context, const Tensor& x, Out y, double, Write write) {
  reduce(context, "sum", x, {}, y, write);
}
void squared_deviation(AccountContext& context, const Tensor& x, const Tensor& mean, Out y, double) {
  reduce(context, "var", x, mean, y, Write::overwrite);
}
std::int64_t count_nonfinite(AccountContext& context, const Tensor& x) {
  exact_total(context, "count_nonfinite", x);
  return 0;
}
std::uint64_t hash_elements(AccountContext& context, const Tensor& x, std::uint64_t) {
  exact_total(context, "hash_elements", x);
  return 0;
}
void sum_squares(AccountContext& context, const Tensor& x, Out sum) {
  total(context, "sum_squares", cuda::total_blocks(x.numel(), size_of(x.dtype())), {x}, sum);
}

// Losses ---------------------------------------------------------------------------------------------------

void cross_entropy_forward(AccountContext& context, const Tensor& logits, const Tensor& target, double,
                           double, Out stats, Out losses, Out y) {
  context.map("cross_entropy", {logits, target}, {stats, losses});
  if (y.defined())
    total(context, "cross_entropy", cuda::total_blocks(losses.numel(), size_of(losses.dtype())), {losses}, y);
}
/// Of each row, the target's element.
void nll_forward(AccountContext& context, const Tensor& log_probs, const Tensor& target, double, Out y) {
  const std::int64_t rows = log_probs.shape()[0], losses = rows * wide(log_probs);
  context.map("nll_loss", {target, rows * account::size(log_probs.dtype())}, {losses});
  if (y.rank() == 0) total(context, "nll_loss", cuda::total_blocks(rows, size_of(y.dtype())), {losses}, y);
}
#define ATH_SPECIALISE(Op)                                                                      \
  template <>                                                                                   \
  void pair_loss_sum<Op>(AccountContext & context, const Op&, const Tensor& a, const Tensor& b, \
                         const Tensor& weight, double, const Tensor& y) {                       \
    const std::size_t widest = size_of(weight.defined() ? weight.dtype() : a.dtype());          \
    total(context, "pair_loss", cuda::total_blocks(a.numel(), widest), {a, b, weight}, y);      \
  }
ATH_PAIR_LOSSES(ATH_SPECIALISE)
#undef ATH_SPECIALISE

// Metrics --------------------------------------------------------------------------------------------------

/// A warp a row; blocks write a count and a sum each.
void add_metrics(AccountContext& context, const Tensor& losses, const Tensor& logits, const Tensor& target,
                 Out totals) {
  const std::int64_t partial =
      std::int64_t{16} * cuda::row_blocks(context.multiprocessors, logits.dim(0), cuda::kWarp);
  context.map("metrics", {losses, logits, target}, {partial});
  context.launch("metrics", {partial, totals}, {totals});
}
void add_top_k(AccountContext& context, const Tensor& logits, const Tensor& target, std::int64_t, Out total) {
  if (target.numel() > 0) context.launch("metrics", {logits, target, total}, {total});
}
/// Every pair in a place of its own, where there are as many.
void add_confusion(AccountContext& context, const Tensor& predicted, const Tensor& target, Out counts) {
  const std::int64_t counted = std::min(account::bytes(counts), target.numel() * 8);
  if (counted > 0) context.launch("metrics", {predicted, target, counted}, {counted});
}

void keep_rows(AccountContext& context, const Tensor& prediction, const Tensor& target, const Tensor& at,
               Out) {
  if (at.numel() == 0) return;
  context.launch("metrics", {prediction, target, at}, {account::bytes(prediction) * 2 + at.numel() * 8});
}

}  // namespace athanor::kernels
