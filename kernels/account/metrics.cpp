#include "kernels/metrics.h"

#include "kernels/account/detail/cost.h"

namespace athanor::kernels {

using account::bytes;
using account::launch;

/// A warp a row; blocks write a count and a sum each.
template <>
void add_metrics(AccountContext& context, const Tensor& losses, const Tensor& logits, const Tensor& target,
                 const Tensor& totals) {
  const std::int64_t blocks =
      std::min<std::int64_t>(account::pieces(logits.shape()[0], 8), context.multiprocessors * 16);
  if (blocks > 0) launch(context, "metrics", bytes(losses) + bytes(logits) + bytes(target), blocks * 16);
  launch(context, "metrics", blocks * 16 + bytes(totals), bytes(totals));
}

template <>
void add_metric(AccountContext& context, const Tensor& values, double, MetricReduce, const Tensor& total) {
  launch(context, "metrics", bytes(values) + bytes(total), bytes(total));
}

template <>
void add_top_k(AccountContext& context, const Tensor& logits, const Tensor& target, std::int64_t,
               const Tensor& total) {
  if (logits.shape()[0] > 0)
    launch(context, "metrics", bytes(logits) + bytes(target) + bytes(total), bytes(total));
}

/// Every pair in a place of its own, where there are as many.
template <>
void add_confusion(AccountContext& context, const Tensor& predicted, const Tensor& target,
                   const Tensor& counts) {
  const std::int64_t counted = std::min(bytes(counts), target.numel() * 8);
  if (target.numel() > 0) launch(context, "metrics", bytes(predicted, target) + counted, counted);
}

}  // namespace athanor::kernels
