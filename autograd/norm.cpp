#include "autograd/norm.h"

#include <vector>

#include "autograd/detail/activation.h"
#include "autograd/detail/dense.h"
#include "autograd/detail/norms.h"
#include "autograd/detail/rounded.h"
#include "autograd/node.h"
#include "autograd/op_trace.h"
#include "kernels/activate.h"
#include "kernels/norm.h"
#include "kernels/on_device.h"

namespace athanor {
namespace {

void check_batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                      const Tensor& running_var, bool training, bool joined, const Tensor& residual) {
  constexpr const char* op = "batch_norm";
  detail::check_norm_input(op, x, 1);
  const Shape channels = {x.dim(-1)};
  detail::check_norm_parameter(op, "gamma", gamma, channels, x);
  detail::check_norm_parameter(op, "beta", beta, channels, x);
  ATH_CHECK(running_mean.defined() == running_var.defined() && (training || running_mean.defined()),
            "batch_norm: running_mean and running_var must both be given{}, but one is missing",
            training ? ", or neither" : "");
  detail::check_norm_parameter(op, "running_mean", running_mean, channels, x);
  detail::check_norm_parameter(op, "running_var", running_var, channels, x);
  if (training && !joined) {
    const std::int64_t values = x.dim(-1) > 0 ? x.numel() / x.dim(-1) : 2;
    ATH_CHECK(values > 1, "batch_norm: training needs at least 2 values per channel, but x {} has {}",
              x.shape(), values);
  }
  if (!residual.defined()) return;
  ATH_CHECK(residual.shape() == x.shape() && residual.dtype() == x.dtype() && residual.device() == x.device(),
            "batch_norm: residual must be {} {} on {} like x, but is {} {} on {}{}", x.dtype(), x.shape(),
            x.device().str(), residual.dtype(), residual.shape(), residual.device().str(),
            cast_hint("residual", residual, x.dtype(), x.device()));
}

// The row that a rank sends to the others in a joint batch norm.
Tensor empty_row(const Tensor& x) {
  return Tensor::empty({1 + 2 * x.dim(-1)}, {DType::f64, x.device()});
}

// Gathers the moments of all ranks.
template <class Context> Tensor gather_moments(Context& context, const Tensor& x, JoinedBatch& joined) {
  const Tensor row = empty_row(x);
  kernels::batch_norm_moments(context, x, row);
  const Tensor rows = joined.gather(row);
  // With two values on this rank there are enough; otherwise it checks, with a wait.
  if (x.dim(-1) == 0 || x.numel() > x.dim(-1)) return rows;
  const std::vector<double> values = rows.to(kCpu).to_vector();
  double all = 0;
  for (std::int64_t r = 0; r < rows.dim(0); ++r) all += values[static_cast<std::size_t>(r * rows.dim(1))];
  ATH_CHECK(all > 1,
            "batch_norm: training needs at least 2 values per channel over all ranks, but x {} and those of "
            "the {} other ranks have {}",
            x.shape(), rows.dim(0) - 1, all);
  return rows;
}

Tensor statistics(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, bool training,
                  const BatchNormParams& params) {
  const Tensor stats = Tensor::empty({2, x.dim(-1)}, {detail::stats_dtype(x), x.device()});
  const bool updates = training && running_mean.defined() && !recomputing();
  kernels::RunningStats running;
  if (updates) running = {running_mean, running_var, rounded(params.momentum, x)};
  const double eps = rounded(params.eps, x);
  on_device(x.device(), [&](auto& context) {
    if (!training) {
      kernels::batch_norm_fixed(context, {running_mean, running_var}, eps, stats);
    } else if (params.joined) {
      const Tensor rows = gather_moments(context, x, *params.joined);
      kernels::batch_norm_join(context, rows, eps, stats, running);
    } else {
      kernels::batch_norm_statistics(context, x, eps, stats, running);
    }
  });
  if (updates) {
    running_mean.bump_version();
    running_var.bump_version();
  }
  return stats;
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                  const Tensor& running_var, bool training, const BatchNormParams& params,
                  const Tensor& residual) {
  check_batch_norm(x, gamma, beta, running_mean, running_var, training, params.joined != nullptr, residual);
  const Activation activation = params.activation;
  if (!fusion_enabled() && (activation != Activation::none || residual.defined())) {
    BatchNormParams alone = params;
    alone.activation = Activation::none;
    const Tensor y = batch_norm(x, gamma, beta, running_mean, running_var, training, alone);
    return detail::activate(activation, residual.defined() ? y + residual : y);
  }
  JoinedBatch* const joined = training ? params.joined : nullptr;
  const Tensor in = dense(x), plus = residual.defined() ? dense(residual) : Tensor();
  const Tensor stats = statistics(in, running_mean, running_var, training, params);
  const Tensor y = empty_like(in);
  on_device(x.device(), [&](auto& context) {
    kernels::batch_norm_forward(context, activation, in, gamma, beta, stats, plus, y);
  });
  if (OpTrace* const trace = op_trace())
    trace->add("batch_norm", {y}, {x, gamma, beta, running_mean, running_var, residual},
               {{"eps", {params.eps}}, {"activation", {activation}}, {"training", {training}}});
  const bool mixes = residual.defined() && activation != Activation::none;
  return record("batch_norm", y, {x, gamma, beta, residual},
                [in = Saved(in), gamma = Saved(gamma), beta = Saved(beta), stats = Saved(stats),
                 extra = !mixes                                      ? Saved(Tensor())
                         : kernels::gradient_from_output(activation) ? Saved::output(y)
                                                                     : Saved(plus),
                 activation, training, joined](const Tensor& seed, Grads& dx) {
                  kernels::BatchNormBackward args;
                  args.activation = activation;
                  args.training = training;
                  args.x = in;
                  args.gamma = gamma;
                  args.beta = beta;
                  args.stats = stats;
                  args.dy = dense(seed);
                  args.extra = extra;
                  if (args.extra.defined()) args.dresidual = empty_like(args.x);
                  if (dx.needs(0)) dx[0] = args.dx = empty_like(args.x);
                  if (dx.needs(1)) args.dgamma = detail::norm_target(dx, 1, gamma);
                  if (dx.needs(2)) args.dbeta = detail::norm_target(dx, 2, beta);
                  if (dx.needs(3)) dx[3] = args.extra.defined() ? args.dresidual : args.dy;
                  on_device(args.x.device(), [&](auto& context) {
                    if (!joined) return kernels::batch_norm_backward(context, args);
                    const Tensor row = empty_row(args.x);
                    kernels::batch_norm_backward_sums(context, args, row);
                    if (args.dx.defined())
                      kernels::batch_norm_backward_join(context, args, joined->gather(row));
                  });
                });
}

}  // namespace athanor
