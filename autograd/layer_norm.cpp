#include "autograd/detail/dense.h"
#include "autograd/detail/norms.h"
#include "autograd/norm.h"
#include "kernels/on_device.h"

// Norms over a sample's own values: layer, group and instance norm.

namespace athanor {
namespace {

// Records a norm that saves its statistics. `backward` calls its kernel.
template <class Backward>
Tensor record_norm(const OpCall& op, const Tensor& y, const Tensor& x, const Tensor& in, const Tensor& gamma,
                   const Tensor& beta, const Tensor& stats, Backward backward) {
  return record(op, y, {x, gamma, beta},
                [in = Saved(in), gamma = Saved(gamma), beta = Saved(beta), stats = Saved(stats), backward](
                    const Tensor& seed, Grads& dx) {
                  const Tensor dy = dense(seed);
                  kernels::GradientTarget dgamma, dbeta;
                  if (dx.needs(0)) dx[0] = empty_like(dy);
                  if (dx.needs(1)) dgamma = detail::norm_target(dx, 1, gamma);
                  if (dx.needs(2)) dbeta = detail::norm_target(dx, 2, beta);
                  on_device(dy.device(), [&](auto& context) {
                    backward(context, in.get(), gamma.get(), stats.get(), dy, dx[0], dgamma, dbeta);
                  });
                });
}

Tensor normalize_groups(const char* op, const Tensor& x, std::int64_t groups, const Tensor& gamma,
                        const Tensor& beta, double eps) {
  const Shape channels = {x.dim(-1)};
  detail::check_norm_parameter(op, "gamma", gamma, channels, x);
  detail::check_norm_parameter(op, "beta", beta, channels, x);
  const Tensor in = dense(x), y = empty_like(in);
  const Tensor stats = Tensor::empty({x.dim(0), groups, 2}, {wide_dtype(x), x.device()});
  on_device(x.device(), [&](auto& context) {
    kernels::group_norm_forward(context, in, gamma, beta, rounded(eps, x), stats, y);
  });
  return record_norm({op, {{"eps", {eps}}, {"groups", {groups}}}}, y, x, in, gamma, beta, stats,
                     [](auto& context, auto&... args) { kernels::group_norm_backward(context, args...); });
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, int axes) {
  detail::check_norm_input("layer_norm", x, axes);
  Shape trailing;
  for (int axis = x.rank() - axes; axis < x.rank(); ++axis) trailing.push_back(x.shape()[axis]);
  detail::check_norm_parameter("layer_norm", "gamma", gamma, trailing, x);
  detail::check_norm_parameter("layer_norm", "beta", beta, trailing, x);
  const std::int64_t size = trailing.numel();
  ATH_CHECK(size > 0, "layer_norm: rows must have at least one element, but x is {}", x.shape());
  const Tensor in = dense(x), y = empty_like(in);
  const Tensor stats = Tensor::empty({x.numel() / size, 2}, {wide_dtype(x), x.device()});
  on_device(x.device(), [&](auto& context) {
    kernels::layer_norm_forward(context, in, gamma, beta, rounded(eps, x), stats, y);
  });
  return record_norm({"layer_norm", {{"eps", {eps}}, {"axes", {axes}}}}, y, x, in, gamma, beta, stats,
                     [](auto& context, auto&... args) { kernels::layer_norm_backward(context, args...); });
}

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& gamma, const Tensor& beta, double eps) {
  detail::check_norm_input("group_norm", x, 2);
  ATH_CHECK(groups > 0 && x.dim(-1) % groups == 0,
            "group_norm: groups must divide the channels, but got {} for {}", groups, x.shape());
  ATH_CHECK(x.numel() != groups, "group_norm: x must have at least 2 values per group, but {} in {} has 1",
            x.shape(), groups);
  return normalize_groups("group_norm", x, groups, gamma, beta, eps);
}

Tensor instance_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  detail::check_norm_input("instance_norm", x, 3);
  const std::int64_t channels = x.dim(-1);
  ATH_CHECK(channels > 0 && x.numel() != x.dim(0) * channels,
            "instance_norm: x must have channels of at least 2 pixels, but is {}", x.shape());
  return normalize_groups("instance_norm", x, channels, gamma, beta, eps);
}

}  // namespace athanor
