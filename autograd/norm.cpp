#include "autograd/norm.h"

#include <vector>

#include "autograd/detail/activation.h"
#include "autograd/detail/conv_norm_parts.h"
#include "autograd/detail/dense.h"
#include "autograd/detail/norms.h"
#include "autograd/node.h"
#include "autograd/op_trace.h"
#include "kernels/activate.h"
#include "kernels/norm.h"
#include "kernels/on_device.h"

namespace athanor {
namespace {

void check_batch_norm(const Tensor& x, const NormArguments& norm, const Tensor& residual) {
  const Tensor &running_mean = norm.running_mean, &running_var = norm.running_var;
  constexpr const char* op = "batch_norm";
  detail::check_norm_input(op, x, 1);
  const Shape channels = {x.dim(-1)};
  detail::check_norm_parameter(op, "gamma", norm.gamma, channels, x);
  detail::check_norm_parameter(op, "beta", norm.beta, channels, x);
  ATH_CHECK(running_mean.defined() == running_var.defined() && (norm.training || running_mean.defined()),
            "batch_norm: running_mean and running_var must both be given{}, but one is missing",
            norm.training ? ", or neither" : "");
  detail::check_norm_parameter(op, "running_mean", running_mean, channels, x);
  detail::check_norm_parameter(op, "running_var", running_var, channels, x);
  if (norm.training && !norm.params.joined) {
    const std::int64_t values = x.dim(-1) > 0 ? x.numel() / x.dim(-1) : 2;
    if (values < 2)
      detail::fail<TooFewValuesError>(
          "batch_norm: training needs at least 2 values per channel, but x {} has {}", x.shape(), values);
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
  if (all < 2)
    detail::fail<TooFewValuesError>(
        "batch_norm: training needs at least 2 values per channel over all ranks, but x {} and those of the "
        "{} other ranks have {}",
        x.shape(), rows.dim(0) - 1, all);
  return rows;
}

/// What a forward pass reads, but for the running statistics, and room for what it writes, but for the mask.
kernels::BatchNormTraining pass_of(const Tensor& x, const Tensor& sums, const NormArguments& norm,
                                   const Tensor& residual) {
  kernels::BatchNormTraining pass;
  pass.activation = norm.params.activation;
  pass.x = dense(x);
  pass.gamma = norm.gamma;
  pass.beta = norm.beta;
  if (residual.defined()) pass.residual = dense(residual);
  pass.eps = rounded(norm.params.eps, x);
  pass.sums = sums;
  pass.stats = Tensor::empty({2, x.dim(-1)}, {wide_dtype(x), x.device()});
  pass.y = empty_like(pass.x);
  return pass;
}

/// Computes stats and y, from args with all else.
void normalize(const kernels::BatchNormTraining& args, bool training, JoinedBatch* joined) {
  on_device(args.x.device(), [&](auto& context) {
    if (training && !joined) return kernels::batch_norm_training(context, args);
    if (training) {
      const Tensor rows = gather_moments(context, args.x, *joined);
      kernels::batch_norm_join(context, rows, args.eps, args.stats, args.running);
    } else {
      kernels::batch_norm_fixed(context, args.running, args.eps, args.stats);
    }
    kernels::batch_norm_forward(context, args.activation, args.x, args.gamma, args.beta, args.stats,
                                args.residual, args.y, args.mask);
  });
}

std::int64_t mask_bytes(Activation activation, const Tensor& x) {
  return on_device(x.device(),
                   [&](auto& context) { return kernels::batch_norm_mask_bytes(context, activation, x); });
}

/// What the backward pass reads instead of y, for the forward pass to write; undefined if it reads y.
Tensor empty_mask(Activation activation, const Tensor& x) {
  const std::int64_t bytes = mask_bytes(activation, x);
  return bytes > 0 ? Tensor::empty({bytes}, {DType::u8, x.device()}) : Tensor();
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                  const Tensor& running_var, bool training, const BatchNormParams& params,
                  const Tensor& residual) {
  return detail::batch_norm({x, {}, {gamma, beta, running_mean, running_var, training, params}}, residual);
}

Tensor detail::batch_norm(const Unnormalised& input, const Tensor& residual) {
  const Tensor &x = input.y, &gamma = input.norm.gamma, &beta = input.norm.beta,
               &running_mean = input.norm.running_mean, &running_var = input.norm.running_var;
  const bool training = input.norm.training;
  const BatchNormParams& params = input.norm.params;
  check_batch_norm(x, input.norm, residual);
  const Activation activation = params.activation;
  if (!fusion_enabled() && (activation != Activation::none || residual.defined())) {
    BatchNormParams alone = params;
    alone.activation = Activation::none;
    const Tensor y =
        batch_norm({x, input.sums, {gamma, beta, running_mean, running_var, training, alone}}, {});
    return activate(activation, residual.defined() ? y + residual : y);
  }
  JoinedBatch* const joined = training ? params.joined : nullptr;
  const bool updates = training && running_mean.defined() && !recomputing();
  const bool mixes = residual.defined() && activation != Activation::none;
  kernels::BatchNormTraining pass = pass_of(x, input.sums, input.norm, residual);
  if (updates || !training) pass.running = {running_mean, running_var, rounded(params.momentum, x)};
  if (mixes && records({x, gamma, beta, residual})) pass.mask = empty_mask(activation, pass.x);
  normalize(pass, training, joined);
  if (updates) {
    running_mean.bump_version();
    running_var.bump_version();
  }
  const Tensor &y = pass.y, &mask = pass.mask;
  const Input inputs[] = {x, gamma, beta, Input::fixed(running_mean), Input::fixed(running_var), residual};
  const OpNumber eps = params.eps, act = activation;
  return record({"batch_norm", {{"eps", {eps}}, {"activation", {act}}, {"training", {training}}}}, y, inputs,
                [in = Saved(pass.x), gamma = Saved(gamma), beta = Saved(beta), stats = Saved(pass.stats),
                 extra = !mixes || mask.defined()                    ? Saved(mask)
                         : kernels::gradient_from_output(activation) ? Saved::output(y)
                                                                     : Saved(pass.residual),
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

// Two norms that are added --------------------------------------------------------------------------------

namespace {

kernels::NormTerm kernel_term(const Unnormalised& term) {
  const NormArguments& of = term.norm;
  kernels::NormTerm norm{dense(term.y), of.gamma, of.beta, rounded(of.params.eps, term.y), {}, {}};
  if (of.running_mean.defined() && !recomputing())
    norm.running = {of.running_mean, of.running_var, rounded(of.params.momentum, term.y)};
  norm.stats = Tensor::empty({2, term.y.dim(-1)}, {wide_dtype(term.y), term.y.device()});
  norm.sums = term.sums;
  return norm;
}

/// f(context), where its backend has kernels for a pair.
template <class F> void with_pairs(Device device, const F& f) {
  on_device(device, [&]<class Context>(Context& context) {
    if constexpr (kernels::kHasNormPairs<Context>) f(context);
  });
}

/// What the backward pass keeps of one term.
struct SavedTerm {
  Saved x, gamma, stats;

  explicit SavedTerm(const kernels::NormTerm& norm) : x(norm.x), gamma(norm.gamma), stats(norm.stats) {}
  kernels::NormTerm term() const { return {x, gamma, {}, 0, {}, stats}; }
};

/// Where the gradients of inputs first, first + 1 and first + 2 go.
kernels::NormGradients term_gradients(Grads& dx, int first, const kernels::NormTerm& norm,
                                      const Tensor& beta) {
  kernels::NormGradients to;
  if (dx.needs(first)) dx[first] = to.dx = empty_like(norm.x);
  if (dx.needs(first + 1)) to.dgamma = detail::norm_target(dx, first + 1, norm.gamma);
  if (dx.needs(first + 2)) to.dbeta = detail::norm_target(dx, first + 2, beta);
  return to;
}

}  // namespace

bool detail::fuses_batch_norm_pair(const Unnormalised& a, const Unnormalised& b) {
  const BatchNormParams &of_a = a.norm.params, &of_b = b.norm.params;
  return a.norm.training && b.norm.training && !of_a.joined && !of_b.joined &&
         of_b.activation == Activation::none && fusion_enabled() && !op_trace() &&
         mask_bytes(of_a.activation, a.y) > 0;
}

Tensor detail::batch_norm_pair(const Unnormalised& a, const Unnormalised& b) {
  check_batch_norm(a.y, a.norm, b.y);
  check_batch_norm(b.y, b.norm, {});
  const Tensor &gamma_a = a.norm.gamma, &beta_a = a.norm.beta, &gamma_b = b.norm.gamma, &beta_b = b.norm.beta;
  const kernels::NormTerm first = kernel_term(a), second = kernel_term(b);
  const Tensor y = empty_like(first.x);
  const bool recorded = records({a.y, gamma_a, beta_a, b.y, gamma_b, beta_b});
  const Tensor mask = recorded ? empty_mask(a.norm.params.activation, first.x) : Tensor();
  with_pairs(y.device(),
             [&](auto& context) { kernels::batch_norm_pair_training(context, first, second, y, mask); });
  for (const kernels::NormTerm* norm : {&first, &second}) {
    if (!norm->running.mean.defined()) continue;
    norm->running.mean.bump_version();
    norm->running.var.bump_version();
  }
  return record("batch_norm_pair", y, {a.y, gamma_a, beta_a, b.y, gamma_b, beta_b},
                [first = SavedTerm(first), second = SavedTerm(second), mask = Saved(mask),
                 beta_a = Saved(beta_a), beta_b = Saved(beta_b)](const Tensor& seed, Grads& dx) {
                  const kernels::NormTerm of_a = first.term(), of_b = second.term();
                  const auto to_a = term_gradients(dx, 0, of_a, beta_a),
                             to_b = term_gradients(dx, 3, of_b, beta_b);
                  const Tensor dy = dense(seed);
                  with_pairs(dy.device(), [&](auto& context) {
                    kernels::batch_norm_pair_backward(context, of_a, of_b, dy, mask, to_a, to_b);
                  });
                });
}

}  // namespace athanor
