#include "autograd/norm.h"

#include <vector>

#include "autograd/detail/activation.h"
#include "autograd/detail/conv_norm_parts.h"
#include "autograd/detail/dense.h"
#include "autograd/detail/norms.h"
#include "autograd/detail/pool_windows.h"
#include "autograd/node.h"
#include "autograd/op_trace.h"
#include "kernels/activate.h"
#include "kernels/norm.h"
#include "kernels/on_device.h"
#include "kernels/pool_ops.h"

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

/// What a forward pass reads, but for the running statistics, and room for the stats that it writes.
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

/// Whether a norm in training may offer its gradient to the convolution behind it.
bool may_offer(const Unnormalised& x) {
  const NormArguments& norm = x.norm;
  return norm.training && !norm.params.joined && norm.params.activation == Activation::relu &&
         norm.gamma.defined() && norm.beta.defined() && x.y.dtype() == DType::f16 && fusion_enabled() &&
         on_device(x.y.device(), []<class Context>(Context&) { return kernels::kHasPendingNorms<Context>; });
}

/// y, whose node makes that offer, if it has one.
Tensor with_offer(const Tensor& y, const Ref<detail::NormGradientOffer>& offer) {
  if (offer && y.requires_grad()) static_cast<detail::NormNode&>(*y.autograd()).offer = offer.get();
  return y;
}

/// Records the op that `pass` computes. `offer`: what it offers; null: nothing.
Tensor record_norm(const Unnormalised& input, const Tensor& residual, const kernels::BatchNormTraining& pass,
                   const Ref<detail::NormGradientOffer>& offer) {
  const NormArguments& norm = input.norm;
  const bool training = norm.training;
  const Activation activation = norm.params.activation;
  JoinedBatch* const joined = training ? norm.params.joined : nullptr;
  const bool mixes = residual.defined() && activation != Activation::none;
  const Tensor &y = pass.y, &mask = pass.mask, &gamma = norm.gamma;
  const Input inputs[] = {
      input.y, gamma, norm.beta, Input::fixed(norm.running_mean), Input::fixed(norm.running_var), residual};
  const OpNumber eps = norm.params.eps, act = activation;
  const Tensor result = record<detail::NormNode>(
      {"batch_norm", {{"eps", {eps}}, {"activation", {act}}, {"training", {training}}}}, y, inputs,
      [in = Saved(pass.x), gamma = Saved(gamma), beta = Saved(norm.beta), stats = Saved(pass.stats),
       extra = !mixes || mask.defined()                    ? Saved(mask)
               : kernels::gradient_from_output(activation) ? Saved::output(y)
                                                           : Saved(pass.residual),
       activation, training, joined, offer](const Tensor& seed, Grads& dx) {
        kernels::BatchNormBackward args;
        args.activation = activation;
        args.training = training;
        args.x = in;
        args.gamma = gamma;
        args.beta = beta;
        args.stats = stats;
        args.dy = dense(seed);
        args.extra = extra;
        if (offer) args.sums = offer->take(seed);
        if (args.sums.defined()) args.activation = Activation::none, args.extra = {};
        if (args.extra.defined()) args.dresidual = empty_like(args.x);
        if (dx.needs(0)) dx[0] = args.dx = empty_like(args.x);
        if (dx.needs(1)) args.dgamma = detail::norm_target(dx, 1, gamma);
        if (dx.needs(2)) args.dbeta = detail::norm_target(dx, 2, beta);
        if (dx.needs(3)) dx[3] = args.extra.defined() ? args.dresidual : args.dy;
        on_device(args.x.device(), [&](auto& context) {
          if (!joined) return kernels::batch_norm_backward(context, args);
          const Tensor row = empty_row(args.x);
          kernels::batch_norm_backward_sums(context, args, row);
          if (args.dx.defined()) kernels::batch_norm_backward_join(context, args, joined->gather(row));
        });
      });
  return with_offer(result, offer);
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
  pass.y = empty_like(pass.x);
  if (updates || !training) pass.running = {running_mean, running_var, rounded(params.momentum, x)};
  if (mixes && records({x, gamma, beta, residual})) pass.mask = empty_mask(activation, pass.x);
  normalize(pass, training, joined);
  if (updates) {
    running_mean.bump_version();
    running_var.bump_version();
  }
  Ref<NormGradientOffer> offer;
  if (may_offer(input) && records({x, gamma, beta, residual}))
    offer =
        make_ref<NormGradientOffer>(kernels::PendingNorm{pass.x, gamma, beta, pass.stats, {}, pass.residual});
  return record_norm(input, residual, pass, offer);
}

namespace {

/// It is sealed as it is returned, which moves it.
template <class T> T sealed(T saved) {
  return saved;
}

}  // namespace

detail::NormGradientOffer::NormGradientOffer(const kernels::PendingNorm& norm)
    : norm_(sealed(SavedNorm(norm))), residual_(sealed(Saved(norm.residual))) {
  if (norm.other) other_.emplace(SavedNorm(*norm.other));
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
void count_update(const kernels::RunningStats& running) {
  if (!running.mean.defined()) return;
  running.mean.bump_version();
  running.var.bump_version();
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

/// What writes the gradients of one term.
kernels::BatchNormBackward backward_of(const kernels::NormTerm& norm, const kernels::NormGradients& to) {
  kernels::BatchNormBackward args;
  args.x = norm.x, args.gamma = norm.gamma, args.stats = norm.stats;
  args.dx = to.dx, args.dgamma = to.dgamma, args.dbeta = to.dbeta;
  return args;
}

/// Records batch_norm_pair(). Without a mask, its backward pass reads y.
Tensor record_pair(const Unnormalised& a, const Unnormalised& b, const kernels::NormTerm& first,
                   const kernels::NormTerm& second, const Tensor& y, const Tensor& mask) {
  const Tensor &gamma_a = a.norm.gamma, &beta_a = a.norm.beta, &gamma_b = b.norm.gamma, &beta_b = b.norm.beta;
  Ref<detail::NormGradientOffer> offer;
  if (records({a.y, gamma_a, beta_a, b.y, gamma_b, beta_b}) && may_offer(a) && gamma_b.defined() &&
      beta_b.defined()) {
    const kernels::PendingNorm other{second.x, gamma_b, beta_b, second.stats, {}};
    offer = make_ref<detail::NormGradientOffer>(
        kernels::PendingNorm{first.x, gamma_a, beta_a, first.stats, {}, {}, &other});
  }
  const Tensor result = record<detail::NormNode>(
      "batch_norm_pair", y, {a.y, gamma_a, beta_a, b.y, gamma_b, beta_b},
      [first = SavedTerm(first), second = SavedTerm(second), mask = Saved(mask), beta_a = Saved(beta_a),
       beta_b = Saved(beta_b), y = Saved::output(mask.defined() ? Tensor() : y),
       offer](const Tensor& seed, Grads& dx) {
        const kernels::NormTerm of_a = first.term(), of_b = second.term();
        kernels::NormGradients to_a = term_gradients(dx, 0, of_a, beta_a),
                               to_b = term_gradients(dx, 3, of_b, beta_b);
        if (const Tensor sums = offer ? offer->take(seed) : Tensor(); sums.defined()) {
          const Shape rows{2, sums.dim(1)};
          to_a.sums = sums.view_as_strided(rows, sums.strides(), 0);
          to_b.sums = sums.view_as_strided(rows, sums.strides(), 2 * sums.dim(1));
        }
        const Tensor dy = dense(seed);
        with_pairs(dy.device(), [&](auto& context) {
          if (mask.defined() || to_a.sums.defined())
            return kernels::batch_norm_pair_backward(context, of_a, of_b, dy, mask, to_a, to_b);
          kernels::BatchNormBackward one = backward_of(of_a, to_a);  // as one norm after the other
          one.activation = Activation::relu;
          one.dy = dy, one.extra = y, one.dresidual = empty_like(dy);
          kernels::batch_norm_backward(context, one);
          kernels::BatchNormBackward other = backward_of(of_b, to_b);
          other.dy = one.dresidual;
          kernels::batch_norm_backward(context, other);
        });
      });
  return with_offer(result, offer);
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
  count_update(first.running);
  count_update(second.running);
  return record_pair(a, b, first, second, y, mask);
}

// A norm before a convolution that may compute it ----------------------------------------------------------

namespace {

/// Whether an observer reads the values of every op.
bool values_are_observed() {
  return ObserveScope::any([](const OpObserver& observer) {
    return observer.needs_single_ops() || observer.needs_each_gradient();
  });
}

/// Whether a convolution may compute it, as far as the norm goes.
bool may_be_pending(const Unnormalised& x, Activation activation) {
  const NormArguments& norm = x.norm;
  return norm.training && !norm.params.joined && !norm.in_f32 && norm.params.activation == activation &&
         norm.gamma.defined() && norm.beta.defined() && x.sums.defined();
}

}  // namespace

bool detail::may_stay_pending(const DeferredNorm& norm, const ConvArguments& conv) {
  const Unnormalised& x = *norm.unnormalised();
  if (!may_be_pending(x, Activation::relu) || !fusion_enabled() || values_are_observed() || conv.in_f32 ||
      conv.bias.defined())
    return false;
  const Tensor& w = conv.w;  // what is wrong with it, conv2d() says
  if (!w.defined() || w.dtype() != x.y.dtype() || w.device() != x.y.device() || w.shape().rank() != 4)
    return false;
  const DeferredNorm& residual = norm.residual();
  if (const Unnormalised* const other = residual.unnormalised();
      other && (residual.residual().defined() || !may_be_pending(*other, Activation::none)))
    return false;
  const bool pointwise = w.dim(1) == 1 && w.dim(2) == 1 && conv.params.stride[0] == 1 &&
                         conv.params.stride[1] == 1 && conv.params.padding[0] == 0 &&
                         conv.params.padding[1] == 0;
  if (residual.defined() && !pointwise) return false;
  return on_device(x.y.device(), [&]<class Context>(Context& context) {
    if constexpr (kernels::kHasPendingNorms<Context>) {
      return kernels::conv2d_may_follow_norm(context, conv.params, x.y, w, residual.defined());
    } else {
      return false;
    }
  });
}

namespace {

/// Finds the statistics of a norm, and what a convolution needs of it.
kernels::PendingNorm started(const Unnormalised& norm, const Tensor& residual) {
  const LayerScope named(norm.norm.layer);
  check_batch_norm(norm.y, norm.norm, residual);
  const kernels::NormTerm term = kernel_term(norm);
  const Tensor coefficients = Tensor::empty({2, term.x.dim(-1)}, term.x.options());
  with_pairs(term.x.device(),
             [&](auto& context) { kernels::batch_norm_coefficients(context, term, coefficients); });
  count_update(term.running);
  return {term.x, term.gamma, term.beta, term.stats, coefficients};
}

}  // namespace

detail::NormBeforeConv::NormBeforeConv(const DeferredNorm& norm)
    : norm_(*norm.unnormalised()), residual_(norm.residual()) {
  const Unnormalised* const other = residual_.unnormalised();
  const Tensor residual = other ? Tensor() : residual_.value();
  if (other) other_ = started(*other, {});
  operands_ = started(norm_, other ? other->y : residual);
  if (residual.defined()) operands_.residual = dense(residual);
  if (other) operands_.other = &other_;
}

Tensor detail::NormBeforeConv::computed() const {
  const kernels::PendingNorm& norm = operands_;
  const Tensor y = empty_like(norm.x);
  const bool recorded_later = records({norm_.y, norm.gamma, norm.beta, norm.residual, other_.x});
  const Tensor mask = has_shortcut() && recorded_later ? empty_mask(Activation::relu, norm.x) : Tensor();
  on_device(y.device(), [&](auto& context) {
    Tensor shortcut = norm.residual;
    if (norm.other) {
      shortcut = empty_like(y);
      kernels::batch_norm_forward(context, Activation::none, other_.x, other_.gamma, other_.beta,
                                  other_.stats, {}, shortcut);
    }
    kernels::batch_norm_forward(context, Activation::relu, norm.x, norm.gamma, norm.beta, norm.stats,
                                shortcut, y, mask);
  });
  return recorded(y, mask);
}

Tensor detail::NormBeforeConv::recorded(const Tensor& y, const Tensor& mask) const {
  const Tensor& result = y.defined() ? y : operands_.x.detach();
  if (operands_.other) {
    const auto term = [](const kernels::PendingNorm& norm) {
      return kernels::NormTerm{norm.x, norm.gamma, norm.beta, 0, {}, norm.stats};
    };
    return record_pair(norm_, *residual_.unnormalised(), term(operands_), term(other_), result, mask);
  }
  kernels::BatchNormTraining pass;
  pass.x = operands_.x, pass.stats = operands_.stats, pass.residual = operands_.residual;
  pass.y = result, pass.mask = mask;
  const Tensor residual = residual_.value();
  Ref<NormGradientOffer> offer;
  if (records({norm_.y, operands_.gamma, operands_.beta, residual}))
    offer = make_ref<NormGradientOffer>(operands_);
  return record_norm(norm_, residual, pass, offer);
}

// A norm before or after max pooling ----------------------------------------------------------------------

namespace {

/// Whether x's backend has kernels for both, and may use them.
bool may_fuse_pool(const Tensor& x, const NormArguments& norm) {
  return norm.training && !norm.params.joined && !(norm.in_f32 && is_half(x.dtype())) && fusion_enabled() &&
         !op_trace() &&
         on_device(x.device(), []<class Context>(Context&) { return kernels::kHasNormPools<Context>; });
}

/// f(context), where its backend has those kernels.
template <class F> void with_pools(Device device, const F& f) {
  on_device(device, [&]<class Context>(Context& context) {
    if constexpr (kernels::kHasNormPools<Context>) f(context);
  });
}

/// Sets the running statistics that a pass in training is to move.
void track(kernels::BatchNormTraining& pass, const NormArguments& norm) {
  if (norm.running_mean.defined() && !recomputing())
    pass.running = {norm.running_mean, norm.running_var, rounded(norm.params.momentum, pass.x)};
}
void tracked(const kernels::BatchNormTraining& pass) {
  if (!pass.running.mean.defined()) return;
  pass.running.mean.bump_version();
  pass.running.var.bump_version();
}

/// Where the maxima are, for a backward pass.
Tensor empty_index(const Tensor& pooled, const Tensor& x, const NormArguments& norm) {
  return records({x, norm.gamma, norm.beta}) ? Tensor::empty(pooled.shape(), {DType::u8, x.device()})
                                             : Tensor();
}

/// What the backward pass of both keeps.
struct SavedPool {
  Saved x, gamma, beta, stats, index;
  Activation activation;
  kernels::PoolWindows windows;

  SavedPool(const kernels::BatchNormTraining& pass, const Tensor& at, const kernels::PoolWindows& of)
      : x(pass.x),
        gamma(pass.gamma),
        beta(pass.beta),
        stats(pass.stats),
        index(at),
        activation(pass.activation),
        windows(of) {}
  /// The gradients of inputs 0 to 2, without room for dx.
  kernels::BatchNormBackward backward(const Tensor& seed, Grads& dx) const {
    kernels::BatchNormBackward args;
    args.activation = activation;
    args.x = x;
    args.gamma = gamma;
    args.beta = beta;
    args.stats = stats;
    args.dy = dense(seed);
    if (dx.needs(1)) args.dgamma = detail::norm_target(dx, 1, gamma);
    if (dx.needs(2)) args.dbeta = detail::norm_target(dx, 2, beta);
    return args;
  }
};

}  // namespace

bool detail::fuses_batch_norm_max_pool(const Unnormalised& x, const Pool2dParams& pool) {
  if (x.norm.params.activation != Activation::relu || !may_fuse_pool(x.y, x.norm)) return false;
  const kernels::PoolWindows windows = pool_windows("max_pool2d", x.y, pool);
  return kernels::small_windows(windows) && kernels::few_windows(windows, x.y);
}

Tensor detail::batch_norm_max_pool(const Unnormalised& x, const Pool2dParams& pool) {
  check_batch_norm(x.y, x.norm, {});
  const Tensor &gamma = x.norm.gamma, &beta = x.norm.beta;
  const kernels::PoolWindows windows = pool_windows("max_pool2d", x.y, pool);
  kernels::BatchNormTraining pass = pass_of(x.y, x.sums, x.norm, {});
  track(pass, x.norm);
  pass.y = Tensor::empty(pooled_shape(x.y, windows), x.y.options());
  const Tensor index = empty_index(pass.y, x.y, x.norm);
  with_pools(x.y.device(),
             [&](auto& context) { kernels::batch_norm_max_pool_training(context, pass, windows, index); });
  tracked(pass);
  return record("batch_norm_max_pool", pass.y, {x.y, gamma, beta},
                [saved = SavedPool(pass, index, windows)](const Tensor& seed, Grads& dx) {
                  kernels::BatchNormBackward args = saved.backward(seed, dx);
                  if (dx.needs(0)) dx[0] = args.dx = empty_like(args.x);
                  with_pools(args.x.device(), [&](auto& context) {
                    kernels::batch_norm_max_pool_backward(context, args, saved.windows, saved.index);
                  });
                });
}

bool detail::fuses_max_pool_batch_norm(const Tensor& x, const Pool2dParams& pool, const NormArguments& norm) {
  const kernels::PoolWindows windows = pool_windows("max_pool2d", x, pool);
  return kernels::small_windows(windows) && kernels::side_by_side(windows) && may_fuse_pool(x, norm);
}

Tensor detail::max_pool_batch_norm(const Tensor& x, const Pool2dParams& pool, const NormArguments& norm) {
  const kernels::PoolWindows windows = pool_windows("max_pool2d", x, pool);
  const Tensor pooled = Tensor::empty(pooled_shape(x, windows), x.options()), unpooled = dense(x);
  check_batch_norm(pooled, norm, {});
  kernels::BatchNormTraining pass = pass_of(pooled, {}, norm, {});
  pass.y = empty_like(pooled);
  track(pass, norm);
  const Tensor index = empty_index(pooled, x, norm);
  with_pools(x.device(), [&](auto& context) {
    kernels::max_pool_batch_norm_training(context, windows, unpooled, index, pass);
  });
  tracked(pass);
  return record("max_pool_batch_norm", pass.y, {x, norm.gamma, norm.beta},
                [shape = x.shape(), saved = SavedPool(pass, index, windows)](const Tensor& seed, Grads& dx) {
                  kernels::BatchNormBackward args = saved.backward(seed, dx);
                  with_pools(args.x.device(), [&](auto& context) {
                    if (!dx.needs(0)) return kernels::batch_norm_backward(context, args);
                    dx[0] = args.dx = Tensor::empty(shape, args.x.options());
                    kernels::max_pool_batch_norm_backward(context, saved.windows, saved.index, args);
                  });
                });
}

}  // namespace athanor
