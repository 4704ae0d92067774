#include "kernels/loss.h"

#include "kernels/account/detail/cost.h"
#include "kernels/loss_ops.h"

// A row of logits is read once, or again from the cache.

namespace athanor::kernels {

using account::bytes;
using account::launch;
using account::map;
using account::wide;

template <> void check_target(AccountContext&, const char*, const Tensor&, std::int64_t) {}

template <>
void cross_entropy_forward(AccountContext& context, const Tensor& logits, const Tensor& target, double,
                           double, const Tensor& stats, const Tensor& losses, const Tensor& y) {
  launch(context, "cross_entropy", bytes(logits) + bytes(target), bytes(stats) + bytes(losses));
  if (y.defined())
    account::total(context, "cross_entropy", losses.numel(), wide(losses), bytes(losses), bytes(y));
}
template <>
void cross_entropy_backward(AccountContext& context, const Tensor& logits, const Tensor& target,
                            const Tensor& stats, double, double, const Tensor& dy, const Tensor& dx) {
  map(context, "cross_entropy_backward", bytes(logits) + bytes(target) + bytes(stats) + bytes(dy), dx);
}

template <>
void soft_cross_entropy_forward(AccountContext& context, const Tensor& logits, const Tensor& target,
                                const Tensor& weight, double, const Tensor& stats, const Tensor& losses) {
  launch(context, "soft_cross_entropy", bytes(logits) + bytes(target) + bytes(weight),
         bytes(stats) + bytes(losses));
}
template <>
void soft_cross_entropy_backward(AccountContext& context, const Tensor& logits, const Tensor& target,
                                 const Tensor& weight, double, const Tensor& stats, const Tensor& dy,
                                 const Tensor& dx) {
  map(context, "soft_cross_entropy_backward",
      bytes(logits) + bytes(target) + bytes(weight) + bytes(stats) + bytes(dy), dx);
}

template <>
void split_ignored(AccountContext& context, const Tensor& target, std::int64_t, const Tensor& classes,
                   const Tensor& kept) {
  launch(context, "split_ignored", bytes(target), bytes(classes) + bytes(kept));
}

/// Of each row, the target's element.
template <>
void nll_forward(AccountContext& context, const Tensor& log_probs, const Tensor& target, double,
                 const Tensor& y) {
  const std::int64_t rows = log_probs.shape()[0], losses = rows * wide(log_probs);
  const bool reduced = y.rank() == 0;
  launch(context, "nll_loss", bytes(target) + rows * account::size(log_probs.dtype()), losses);
  if (reduced) account::total(context, "nll_loss", rows, wide(log_probs), losses, bytes(y));
}
template <>
void nll_backward(AccountContext& context, const Tensor& target, double, const Tensor& dy, const Tensor& dx) {
  map(context, "nll_loss_backward", bytes(target) + bytes(dy), dx);
}

#define ATH_SPECIALISE_BACKWARD(...)                                                                    \
  template <>                                                                                           \
  void pair_loss_backward<__VA_ARGS__>(AccountContext & context, const __VA_ARGS__&, const Tensor& a,   \
                                       const Tensor& b, const Tensor& weight, double, const Tensor& dy, \
                                       const Tensor& da) {                                              \
    map(context, "pair_loss_backward", bytes(a, b) + bytes(weight) + bytes(dy), da);                    \
  }
#define ATH_SPECIALISE(Op)                                                                           \
  template <>                                                                                        \
  void pair_loss<Op>(AccountContext & context, const Op&, const Tensor& a, const Tensor& b,          \
                     const Tensor& weight, const Tensor& y) {                                        \
    map(context, "pair_loss", bytes(a, b) + bytes(weight), y);                                       \
  }                                                                                                  \
  template <>                                                                                        \
  void pair_loss_sum<Op>(AccountContext & context, const Op&, const Tensor& a, const Tensor& b,      \
                         const Tensor& weight, double, const Tensor& y) {                            \
    const std::int64_t element = weight.defined() ? wide(a) : account::size(a.dtype());              \
    account::total(context, "pair_loss", a.numel(), element, bytes(a, b) + bytes(weight), bytes(y)); \
  }                                                                                                  \
  ATH_SPECIALISE_BACKWARD(Op)
ATH_PAIR_LOSSES(ATH_SPECIALISE)
#undef ATH_SPECIALISE
#define ATH_SPECIALISE(Op) ATH_SPECIALISE_BACKWARD(OfTarget<Op>)
ATH_TARGET_LOSSES(ATH_SPECIALISE)
#undef ATH_SPECIALISE
#undef ATH_SPECIALISE_BACKWARD

}  // namespace athanor::kernels
