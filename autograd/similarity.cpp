#include "autograd/similarity.h"

#include <array>
#include <cmath>

#include "autograd/compare.h"
#include "autograd/creation.h"
#include "autograd/detail/dense.h"
#include "autograd/detail/losses.h"
#include "autograd/elementwise.h"
#include "autograd/matmul.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"

namespace athanor {
namespace {

void check_inputs(const char* op, const Tensor& a, const Tensor& b) {
  check_floating(op, a);
  check_floating(op, b);
  check_alike(op, "inputs must have one dtype and device", a, b, true);
}

// In half types, squares overflow and their sums lose digits.
Tensor widened(const Tensor& x) {
  return cast(x, wide_dtype(x));
}

// The length of vectors along an axis, at least `least`. The bound applies to the square: the root has
// infinite slope at 0, the bound slope 0.
Tensor length(const Tensor& x, int axis, double least, bool keepdim = false) {
  const Tensor squares = sum(square(x), std::array{axis}, keepdim);
  const Tensor bound = full({}, least * least, squares.options());
  return sqrt(where(lt(squares, bound), bound, squares));  // keeps NaN, unlike the gradient of clamp()
}

// The least length whose square is more than 0 in f32.
constexpr double kMin = 1e-18;

}  // namespace

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int axis, double eps) {
  check_inputs("cosine_similarity", a, b);
  ATH_CHECK(eps >= 0 && std::isfinite(eps), "cosine_similarity: eps must be finite and >= 0, but got {}",
            eps);
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), "cosine_similarity");
  axis = normalize_axis(axis, shape.rank(), "cosine_similarity");
  // In f64: squares of f32 may overflow, and those of a small eps vanish.
  const Tensor x = expand(cast(a, DType::f64), shape), y = expand(cast(b, DType::f64), shape);
  const Tensor product = sum(x * y, std::array{axis});
  return cast(product / length(x, axis, eps) / length(y, axis, eps), a.dtype());
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletOptions& options) {
  for (const Tensor* other : {&positive, &negative}) {
    check_inputs("triplet_margin_loss", anchor, *other);
    ATH_CHECK(anchor.rank() > 0 && other->shape() == anchor.shape(),
              "triplet_margin_loss: all three inputs must have one shape [..., D], but got {} and {}",
              anchor.shape(), other->shape());
  }
  ATH_CHECK(options.margin > 0 && std::isfinite(options.margin),
            "triplet_margin_loss: margin must be finite and > 0, but got {}", options.margin);
  ATH_CHECK(options.eps >= 0 && std::isfinite(options.eps),
            "triplet_margin_loss: eps must be finite and >= 0, but got {}", options.eps);
  const Tensor a = widened(anchor), p = widened(positive), n = widened(negative);
  const auto distance = [&](const Tensor& from, const Tensor& to) {
    return length(affine(from - to, 1, options.eps), -1, kMin);
  };
  Tensor apart = distance(a, n);
  if (options.swap) apart = -max(stack(std::array{-apart, -distance(p, n)}, 0), 0);
  const Tensor losses = relu(affine(distance(a, p) - apart, 1, options.margin));
  return detail::reduced(losses, options.reduction);
}

Tensor nt_xent_loss(const Tensor& a, const Tensor& b, double temperature) {
  check_inputs("nt_xent_loss", a, b);
  ATH_CHECK(a.rank() == 2 && b.shape() == a.shape() && a.shape()[0] > 0,
            "nt_xent_loss: both views must be [N, D] with N > 0, but got {} and {}", a.shape(), b.shape());
  ATH_CHECK(temperature > 0 && std::isfinite(temperature),
            "nt_xent_loss: temperature must be finite and > 0, but got {}", temperature);
  const std::int64_t n = a.shape()[0];
  const Tensor rows = cat(std::array{widened(a), widened(b)}, 0);
  const Tensor directions = rows / length(rows, 1, 1e-8, true);
  const Tensor scaled = affine(directions, 1 / temperature);
  const Tensor itself = eye(2 * n, {DType::boolean, a.device()});
  const Tensor never = full({}, -1e30, rows.options());  // finite, so that anomaly mode reports nothing
  const Tensor logits = where(itself, never, matmul(scaled, transpose(directions, 0, 1)));
  const TensorOptions index{DType::i64, a.device()};
  const Tensor last = arange(static_cast<double>(n), static_cast<double>(2 * n), 1, index);
  const Tensor first = arange(0, static_cast<double>(n), 1, index);
  return cross_entropy(logits, cat(std::array{last, first}, 0));
}

}  // namespace athanor
