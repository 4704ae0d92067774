#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "kernels/activate.h"
#include "kernels/copy.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/conv_list.h"
#include "kernels/cuda/conv_padded.h"
#include "kernels/cuda/read_back.h"
#include "kernels/cuda/vendor_impl.h"
#include "kernels/elementwise.h"
#include "kernels/extremum.h"
#include "kernels/norm.h"
#include "kernels/norm_ops.h"
#include "kernels/scratch.h"
#include "tensor/cuda/launch_listener.h"
#include "tensor/detail/device_memory.h"

namespace athanor::cuda {
namespace {

using cudnn::ConvSignature;

ConvSignature signature_of(CudaContext& context, const ConvCall& call) {
  ConvSignature z = cudnn::conv_signature(call.pass, call.x.dtype(), call.x.shape(), call.w.shape(),
                                          call.y.shape(), call.bias.defined(), call.params);
  const void* const addresses[] = {call.x.raw_data(), call.w.raw_data(),
                                   z.bias ? call.bias.raw_data() : nullptr, call.y.raw_data()};
  for (std::size_t i = 0; i < z.alignment.size(); ++i) z.alignment[i] = alignment_of(addresses[i], 16);
  z.out = call.pass == ConvPass::backward_weights ? call.w.dtype() : z.dtype;
  z.accumulate = call.accumulates();
  z.norm = call.norm != nullptr;
  if (z.norm) {
    using Shortcut = ConvSignature::Shortcut;
    z.others = call.pass == ConvPass::backward_data && call.with_norm.defined();
    z.shortcut = call.norm->other                ? Shortcut::norm
                 : call.norm->residual.defined() ? Shortcut::tensor
                                                 : Shortcut::none;
  }
  z.sums = call.sums && call.pass == ConvPass::forward;
  z.rules.tf32 = context.tf32, z.rules.deterministic = context.deterministic;
  return z;
}

/// Whether what a graph needs beside x, w, bias and y is on 16 bytes; behind a norm those as well.
bool is_aligned(const ConvCall& call) {
  const auto aligned = [](const auto&... tensors) {
    return ((!tensors.defined() || alignment_of(tensors.raw_data(), 16) == 16) && ...);
  };
  if (!aligned(call.with_norm) || (call.sums && !aligned(*call.sums))) return false;
  if (call.norm && !aligned(call.x, call.w, call.y)) return false;
  for (const kernels::PendingNorm* norm = call.norm; norm; norm = norm->other) {
    if (!aligned(norm->x, norm->stats, norm->gamma, norm->beta, norm->coefficients, norm->residual))
      return false;
  }
  return true;
}

/// A convolution as the choice of plans sees it (plan_choice.h).
struct PlannedConv {
  CudaContext& context;
  const ConvCall& call;
  ConvSignature signature;

  PlannedConv(CudaContext& on, const ConvCall& wanted, const ConvSignature& z)
      : context(on), call(wanted), signature(z) {}

  Vendor::Impl& impl() const { return context.vendor().impl(); }
  Found<ConvPlan> find(std::size_t most, PlanWay way) const {
    return find_conv_plans(impl().cublas(), signature, impl().target(way), most);
  }
  PlanWay* way() const { return &impl().way; }
  std::optional<ConvPlan> read(const std::string& text) const {
    return cuda::read(impl().cublas(), signature, impl().properties(), text);
  }
  const Tensor& result() const { return call.result(); }
  bool accumulates() const { return call.accumulates(); }
  /// A relu, sums, and what is added to, can also be done after a plan without them.
  bool ours_is_next() const {
    return !signature.relu && !signature.sums && !signature.norm &&
           !(signature.pass == ConvPass::backward_data && signature.accumulate);
  }

  std::optional<bool> accept(const ConvPlan& plan) const {
    if (signature.norm) return keeps_nan_of_norm(plan) ? is_as_ours(plan) : false;
    if (signature.relu) return keeps_nan(*plan.graph);
    if (!signature.sums) return true;
    run(plan, call.y);
    return sums_match();
  }

  void run(const ConvPlan& plan, const Tensor& to) const {
    const ConvCall here = call.with(call.params.impl, to);
    if (plan.channels > 0) {
      convolve_padded(context, plan.channels, here,
                      [&](const ConvCall& padded) { run_graph(*plan.graph, padded, call.bias); });
      return kernels::activate(context, signature.after, to);
    }
    // A graph writes dw in the dtype of x, and does not add. What is small goes through memory of its own.
    if (plan.graph && call.pass == ConvPass::backward_weights &&
        (call.accumulates() || to.dtype() != call.x.dtype())) {
      const Tensor fresh = Tensor::empty(to.shape(), call.x.options());
      run_graph(*plan.graph, call.with(call.params.impl, fresh), call.bias);
      return call.accumulates() ? kernels::add_into(context, fresh, to) : kernels::copy(context, fresh, to);
    }
    if (plan.product) {
      run_product(*plan.product, here);
    } else {
      run_graph(*plan.graph, here, call.bias);
    }
    kernels::activate(context, signature.after, to);
  }

  /// With sums, two passes. They include one small kernel that a training step does not need.
  void run_own(const Tensor& to) const {
    if (call.norm) return call.pass == ConvPass::backward_data ? run_gradient_apart(to) : run_apart(to);
    ConvCall own = call.with(call.sums ? call.params.impl : ConvImpl::reference, to);
    own.sums = nullptr;
    run_conv(context, own);
    if (call.sums) kernels::batch_norm_moments(context, to, moments_row());
  }

 private:
  Tensor moments_row() const { return moments_row(call.y); }
  static Tensor moments_row(const Tensor& of) {
    return Tensor::empty({1 + 2 * of.dim(-1)}, {DType::f64, of.device()});
  }
  /// Of each channel of t, how often it has a value, its mean and the sum of squared deviations.
  std::vector<double> moments_of(const Tensor& t) const {
    const Tensor row = moments_row(t);
    kernels::batch_norm_moments(context, t, row);
    return row.to_vector();
  }

  /// What there is to do without a plan behind a norm: the norm as a pass, or the first pass of its gradient,
  /// which leaves its sums in those of the call.
  void run_apart(const Tensor& to) const {
    const kernels::PendingNorm& norm = *call.norm;
    const bool keeps = call.pass == ConvPass::forward && call.with_norm.defined();
    const Tensor y = keeps ? call.with_norm : empty_like(norm.x);
    if (call.pass != ConvPass::backward_data) compute_norm(context, norm, y);
    switch (call.pass) {
      case ConvPass::forward:
        if (kernels::conv2d_forward_sums(context, call.params, y, call.w, to, *call.sums)) return;
        kernels::conv2d_forward(context, call.params, y, call.w, {}, to);
        return kernels::batch_norm_moments(context, to, moments_row());
      case ConvPass::backward_weights:
        return kernels::conv2d_backward_weights(context, call.params, y, call.y, to, call.write, {},
                                                Write::overwrite);
      case ConvPass::backward_data: break;
    }
    if (call.with_norm.defined()) {
      kernels::copy(context, call.with_norm, y);
      kernels::conv2d_backward_data(context, call.params, call.y, call.w, y, Write::accumulate);
    } else {
      kernels::conv2d_backward_data(context, call.params, call.y, call.w, y);
    }
    const Tensor cut = empty_like(y), none;
    compute_norm(context, norm, cut);
    sum_norm_gradient(context, norm, y, cut, to, *call.sums, 0);
    if (norm.other) sum_norm_gradient(context, *norm.other, to, none, none, *call.sums, 2);
  }
  /// The time of it backward to the data, where forward has kept of a shortcut what its gradient needs.
  void run_gradient_apart(const Tensor& to) const {
    const kernels::PendingNorm& norm = *call.norm;
    const Tensor dy = empty_like(to);
    kernels::conv2d_backward_data(context, call.params, call.y, call.w, dy,
                                  signature.others ? Write::accumulate : Write::overwrite);
    kernels::BatchNormBackward first;
    first.activation = Activation::relu;
    first.x = norm.x, first.gamma = norm.gamma, first.beta = norm.beta, first.stats = norm.stats,
    first.dy = dy;
    if (signature.shortcut != ConvSignature::Shortcut::none) {
      first.extra = Tensor::empty({to.numel() / 8}, {DType::u8, to.device()});
      first.dresidual = to;
    }
    kernels::batch_norm_backward_sums(context, first, moments_row(to));
  }
  void run_graph(const cudnn::Plan& plan, const ConvCall& t, const Tensor& bias) const {
    std::array<void*, 26> pointers{t.x.raw_data(), t.w.raw_data()};
    std::size_t count = 2;
    const auto add = [&](void* pointer) { pointers[count++] = pointer; };
    // Two rows of one number for each channel.
    const auto add_rows = [&](const Tensor& rows) {
      add(rows.raw_data()), add(rows.raw_data() + rows.bytes() / 2);
    };
    if (signature.bias) add(bias.raw_data());
    add(t.y.raw_data());
    const bool gradient = signature.norm && call.pass == ConvPass::backward_data;
    const std::size_t unused = gradient ? static_cast<std::size_t>(signature.c) * sizeof(float) : 0;
    const Scratch coefficients = context.scratch(3 * unused);  // of dL/dx, which batch_norm_backward() finds
    if (gradient) {
      if (signature.others) add(call.with_norm.raw_data());
      for (const kernels::PendingNorm* norm = call.norm; norm; norm = norm->other) {
        add(norm->x.raw_data()), add_rows(norm->stats);
        add(norm->gamma.raw_data()), add(norm->beta.raw_data());
      }
      if (call.norm->residual.defined()) add(call.norm->residual.raw_data());
      std::byte* row = call.sums->raw_data();
      for (const kernels::PendingNorm* norm = call.norm; norm; norm = norm->other) {
        for (int i = 0; i < 2; ++i, row += unused) add(row);
        for (std::size_t i = 0; i < 3; ++i) add(coefficients.as<std::byte>() + i * unused);
      }
    } else if (signature.norm) {
      const kernels::PendingNorm &norm = *call.norm, *const other = norm.other;
      add_rows(norm.coefficients);
      if (other) add(other->x.raw_data()), add_rows(other->coefficients);
      if (norm.residual.defined()) add(norm.residual.raw_data());
      if (call.with_norm.defined()) add(call.with_norm.raw_data());
    }
    if (signature.sums) add_rows(*call.sums);
    const Scratch workspace = context.scratch(plan.workspace_bytes());
    const LaunchScope reported(kernel_name(call.pass), Queued::vendor,
                               static_cast<cudaStream_t>(context.native_stream()));
    plan.run(impl().cudnn_on(context.native_stream()), std::span(pointers.data(), count),
             workspace.as<void>());
  }

  void run_product(const cublas::Algorithm& algorithm, const ConvCall& t) const {
    const bool forward = call.pass == ConvPass::forward, data = call.pass == ConvPass::backward_data;
    std::byte* const to = t.result().raw_data();
    cuda::run_product(context, kernel_name(call.pass), *product_of(signature), algorithm,
                      {.a = (forward ? t.x : t.y).raw_data(),
                       .b = (forward || data ? t.w : t.x).raw_data(),
                       .bias = signature.bias ? t.bias.raw_data() : nullptr,
                       .c = signature.accumulate ? to : nullptr,
                       .y = to});
  }

  /// Whether a fused relu lets a NaN through, as ours does: with a bias of NaN, all of y must be NaN. Some
  /// engines take the maximum of 0 and NaN to be 0, which would hide a diverged model.
  bool keeps_nan(const cudnn::Plan& plan) const {
    const AllowSync planning;
    const Tensor &y = call.y, bias = empty_like(call.bias);
    // All bits set is a NaN in every floating type.
    athanor::detail::set_device_bytes(bias.raw_data(), context.device(), 0xff, bias.bytes());
    run_graph(plan, call, bias);
    return ends_are_nan(y);
  }
  /// The same behind a norm, with a scale and a shift of NaN. Backward to the data, the ReLU is only a mask.
  bool keeps_nan_of_norm(const ConvPlan& plan) const {
    if (call.pass == ConvPass::backward_data) return true;
    const AllowSync planning;
    kernels::PendingNorm norm = *call.norm;
    const Tensor to = zeros(), coefficients = empty_like(norm.coefficients);
    athanor::detail::set_device_bytes(coefficients.raw_data(), context.device(), 0xff, coefficients.bytes());
    norm.coefficients = coefficients;
    ConvCall diverged = call.with(call.params.impl, to);
    diverged.norm = &norm;
    PlannedConv(context, diverged, signature).run(plan, to);
    return ends_are_nan(to) && (!stores_norm() || ends_are_nan(call.with_norm));
  }
  bool ends_are_nan(const Tensor& t) const {
    return dispatch_floating(t.dtype(), "conv2d", [&]<class T>() {
      const auto is_nan = [&](std::int64_t i) {
        return std::isnan(static_cast<Accumulate<T>>(read_back(context, t.data<T>() + i)));
      };
      return is_nan(0) && is_nan(t.numel() - 1);
    });
  }

  /// Whether a plan's sums are those of the y that it wrote, closely enough for a norm: means within 1/1000
  /// of the root of the mean square, variances within 1/1000 of their own. Nothing is compared with NaN.
  bool sums_match() const {
    const AllowSync planning;
    const std::vector<double> exact = moments_of(call.y), found = call.sums->to_vector();
    const double n = exact[0];
    const std::size_t channels = found.size() / 2;
    for (std::size_t c = 0; c < channels; ++c) {
      const double mean = exact[1 + c], var = exact[1 + channels + c] / n;
      const kernels::Moments moments = kernels::moments(0, found[c], found[channels + c], n);
      if (!are_close(moments, {mean, var}, 1e-3)) return false;
    }
    return true;
  }
  static bool are_close(const kernels::Moments& found, const kernels::Moments& exact, double share) {
    constexpr double kTiny = 0x1p-24;  // f16's smallest: what rounds to 0 may be summed before it does
    if (!std::isfinite(exact.mean) || !std::isfinite(exact.var)) return true;
    const double square = exact.mean * exact.mean;
    return std::abs(found.mean - exact.mean) <= share * std::sqrt(exact.var + square) + kTiny &&
           std::abs(found.var - exact.var) <= share * (exact.var + square / 100) + kTiny * kTiny;
  }

  /// What is compared of the results behind a norm: values and each channel's moments of the result, and of
  /// the norm's if that is stored, and sums.
  struct Outcome {
    Tensor result, norm;
    std::vector<double> of_result, of_norm, sums;
  };
  bool stores_norm() const { return call.pass == ConvPass::forward && call.with_norm.defined(); }
  Outcome outcome_of(const Tensor& result) const {
    Outcome found{result, {}, moments_of(result), {}, {}};
    if (stores_norm()) {
      found.norm = empty_like(call.with_norm);
      kernels::copy(context, call.with_norm, found.norm);
      found.of_norm = moments_of(found.norm);
    }
    if (call.sums) found.sums = call.sums->to_vector();
    return found;
  }
  Tensor zeros() const {  // what may be added to
    return Tensor::zeros(call.result().shape(), call.result().options());
  }
  /// Behind a norm: whether a plan's results are those of separate passes. It rounds scale and shift, so
  /// values differ a little. Nothing: all of ours are 0, as a plan's would be that does something else.
  std::optional<bool> is_as_ours(const ConvPlan& plan) const {
    const AllowSync planning;
    const Tensor to = zeros();
    run(plan, to);
    const Outcome found = outcome_of(to);
    if (call.pass == ConvPass::forward) {
      kernels::copy(context, to, call.y);
      if (!sums_match()) return false;
    }
    if (!ours_) {
      const Tensor ours = zeros();
      run_apart(ours);
      ours_ = outcome_of(ours);
    }
    const Outcome& ours = *ours_;
    if (mean_square(ours.of_result) == 0) return {};
    return same_values(found.result, ours.result, ours.of_result) &&
           (!stores_norm() || same_values(found.norm, ours.norm, ours.of_norm)) &&
           moments_match(found.of_result, ours.of_result) &&
           (!stores_norm() || moments_match(found.of_norm, ours.of_norm)) &&
           (call.pass != ConvPass::backward_data ||
            gradient_sums_match(ours.of_result, found.sums, ours.sums));
  }
  static double mean_square(const std::vector<double>& moments) {
    const std::size_t channels = moments.size() / 2;
    double total = 0;
    for (std::size_t c = 1; c <= channels; ++c)
      total += moments[c] * moments[c] + moments[channels + c] / moments[0];
    return total / static_cast<double>(channels);
  }
  /// Whether the root of the mean square of the difference is within 1/50 of that of `exact`, and the largest
  /// difference within 1/2 of it. Backward to the data that one says nothing: a value before the ReLU that is
  /// next to 0 may be cut or not. Nothing is compared with NaN.
  bool same_values(const Tensor& found, const Tensor& exact, const std::vector<double>& moments) const {
    constexpr double kTiny = 0x1p-24;
    const double root = std::sqrt(mean_square(moments));
    if (!std::isfinite(root)) return true;
    const Tensor difference = empty_like(found);
    kernels::affine(context, found, -1, 0, difference);
    kernels::add_into(context, exact, difference);
    if (!(std::sqrt(mean_square(moments_of(difference))) <= root / 50 + kTiny)) return false;
    if (call.pass == ConvPass::backward_data) return true;
    const auto largest = [&] {
      const Shape& shape = difference.shape();
      const std::int64_t columns = shape[2] * shape[3], rows = difference.numel() / columns;
      const Tensor most = Tensor::empty({rows}, difference.options());
      kernels::max(context, difference.view_as_strided({rows, columns}, {columns, 1}, 0), 1, most, {});
      return std::ranges::max(most.to_vector());
    };
    const double above = largest();
    kernels::affine(context, difference, -1, 0, difference);
    return std::max(above, largest()) <= root / 2 + kTiny;
  }
  /// Of each channel, within 1/100.
  static bool moments_match(const std::vector<double>& found, const std::vector<double>& exact) {
    const std::size_t channels = found.size() / 2;
    const double n = exact[0];
    for (std::size_t c = 1; c <= channels; ++c) {
      if (!are_close({found[c], found[channels + c] / n}, {exact[c], exact[channels + c] / n}, 1e-2))
        return false;
    }
    return true;
  }
  /// Backward to the data: sums of g, and of g times what is normalised, within 1/100 of what they can be.
  static bool gradient_sums_match(const std::vector<double>& g, const std::vector<double>& found,
                                  const std::vector<double>& exact) {
    const double n = g[0];
    const std::size_t channels = g.size() / 2;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double mean = g[1 + i % channels], squares = g[1 + channels + i % channels] + n * mean * mean;
      if (std::isfinite(exact[i]) &&
          !(std::abs(found[i] - exact[i]) <= 1e-2 * std::sqrt(n * squares) + n * 0x1p-24))
        return false;
    }
    return true;
  }

  mutable std::optional<Outcome> ours_;  // of separate passes, when first needed
};

}  // namespace

bool vendor_fits(CudaContext& context, const ConvCall& call) {
  return call.x.dtype() != DType::f64 && has_type(context, call.x.dtype());  // f64 checks gradients
}

bool vendor_conv(CudaContext& context, const ConvCall& call) {
  const DeviceGuard guard(context.device());
  Vendor& vendor = context.vendor();
  auto& known = vendor.impl().convolutions;
  const auto run = [&](const ConvSignature& z) {
    return serve(vendor.planner(context), known,
                 call.sums || call.norm || call.params.impl == ConvImpl::automatic,
                 PlannedConv{context, call, z});
  };
  // Some things can only be tried outside of a capture.
  const auto may_try = [&](const ConvSignature& z) { return !is_capturing(context) || known.find(z); };
  ConvSignature z = signature_of(context, call);
  if (call.sums || call.norm) {
    // cuDNN notes nothing of these engines, so only a measurement says whether they are fast.
    return vendor.options().autotune && !context.deterministic && is_aligned(call) && may_try(z) &&
           run(z) == Answer::done;
  }
  if (z.relu) {  // whether a fused one is ours is tried
    const Answer fused = may_try(z) ? run(z) : Answer::no_plan;
    if (fused != Answer::no_plan) return fused == Answer::done;
    z.relu = false, z.after = Activation::relu;
  }
  const Answer answer = run(z);
  if (answer != Answer::no_plan || call.pass != ConvPass::backward_data || !call.accumulates())
    return answer == Answer::done;
  const Tensor fresh = empty_like(call.x);
  ConvCall plain = call.with(call.params.impl, fresh);
  plain.write = Write::overwrite;
  if (!vendor_conv(context, plain)) return false;
  kernels::add_into(context, fresh, call.x);
  return true;
}

}  // namespace athanor::cuda
