#include "autograd/attention.h"

#include <cmath>

#include "autograd/creation.h"
#include "autograd/detail/dense.h"
#include "autograd/dropout.h"
#include "autograd/elementwise.h"
#include "autograd/matmul.h"
#include "autograd/shape.h"
#include "autograd/softmax.h"

namespace athanor {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v) {
  ATH_CHECK(q.defined() && k.defined() && v.defined(), "{}: q, k and v must be tensors, but one is undefined",
            kOp);
  for (const Tensor* other : {&k, &v}) {
    check_alike(kOp, "q, k and v must have one floating dtype and device", q, *other, true, "q",
                other == &k ? "k" : "v");
  }
  ATH_CHECK(
      q.rank() >= 2 && k.rank() >= 2 && v.rank() >= 2 && k.dim(-1) == q.dim(-1) && v.dim(-2) == k.dim(-2),
      "{}: q, k and v must be [..., L, D], [..., S, D] and [..., S, E], but got {}, {} and {}", kOp,
      q.shape(), k.shape(), v.shape());
}

// [L, S] bool: whether key j is at or before query i, as 1 - max(j - i, 0) > 0.
Tensor causal_mask(std::int64_t queries, std::int64_t keys, Device device) {
  const TensorOptions options{DType::f32, device};
  const Tensor i = arange(0, static_cast<double>(queries), 1, options);
  const Tensor j = arange(0, static_cast<double>(keys), 1, options);
  return cast(relu(affine(relu(j - unsqueeze(i, 1)), -1, 1)), DType::boolean);
}

// The softmax over the allowed scores. Others get weight 0, even for a query without allowed keys.
Tensor masked_softmax(const Tensor& scores, const Tensor& allowed) {
  // Finite, so that a query without keys gives no NaN, and anomaly mode reports nothing.
  const Tensor lowest = full({}, -1e30, scores.options());
  const Tensor weights = softmax(where(allowed, scores, lowest));
  return where(allowed, weights, zeros({}, scores.options()));
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
  check_operands(q, k, v);
  const auto& [mask, causal, given, p] = options;
  ATH_CHECK(p >= 0 && p <= 1, "{}: dropout must be in [0, 1], but got {}", kOp, p);
  ATH_CHECK(!(causal && mask.defined()), "{}: causal must not be combined with a mask, but both are given",
            kOp);
  const bool added = mask.defined() && mask.dtype() == q.dtype();
  if (is_half(q.dtype()) && (added || !mask.defined() || mask.dtype() == DType::boolean)) {
    // Rounds only once: scores and weights in a half type would lose digits at every step.
    const AttentionOptions wide{added ? cast(mask, DType::f32) : mask, causal, given, p};
    const auto widened = [](const Tensor& x) { return cast(x, DType::f32); };
    return cast(scaled_dot_product_attention(widened(q), widened(k), widened(v), wide), q.dtype());
  }
  const double scale = given ? *given : 1 / std::sqrt(static_cast<double>(q.dim(-1)));
  // Scales the queries, as there are fewer of them than scores.
  const Tensor scores = matmul(affine(q, scale), transpose(k, -2, -1));
  if (mask.defined()) {
    ATH_CHECK((mask.dtype() == DType::boolean || mask.dtype() == q.dtype()) && mask.device() == q.device() &&
                  broadcasts_to(mask.shape(), scores.shape()),
              "{}: mask must be bool or {} on {} of a shape that broadcasts to {}, but got {} on {} of {}{}",
              kOp, q.dtype(), q.device().str(), scores.shape(), mask.dtype(), mask.device().str(),
              mask.shape(), cast_hint("mask", mask, q.dtype(), q.device()));
  }
  const Tensor weights = [&, mask = mask, causal = causal] {
    if (mask.defined() && mask.dtype() == DType::boolean) return masked_softmax(scores, mask);
    if (causal) return masked_softmax(scores, causal_mask(q.dim(-2), k.dim(-2), q.device()));
    return softmax(mask.defined() ? scores + mask : scores);
  }();
  return matmul(dropout(weights, p, true), v);
}

}  // namespace athanor
