#include "kernels/cuda/vendor_conv.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/activate.h"
#include "kernels/copy.h"
#include "kernels/cuda/conv_error.h"
#include "kernels/cuda/read_back.h"
#include "kernels/cuda/vendor_impl.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/norm_ops.h"
#include "tensor/cuda/launch_listener.h"
#include "tensor/detail/device_memory.h"

namespace athanor::cuda {
namespace {

using cudnn::ConvSignature;
using cudnn::Graph;

/// Operands of one pass, each in its place: x or dx, w or dw, y or dy.
struct Operands {
  const Tensor &x, &w, &bias, &y;
  const Tensor* sums = nullptr;  ///< [2, K], where they are found, too
};

/// Whether cuDNN is asked at all. f64 is for checking gradients.
bool wanted(CudaContext& context, const Conv2dParams& params, DType dtype) {
  if (params.impl != ConvImpl::automatic && params.impl != ConvImpl::vendor) return false;
  return context.vendor().options().enabled && dtype != DType::f64 &&
         (dtype != DType::bf16 || context.sm() >= 80);
}

ConvSignature signature_of(CudaContext& context, Graph::Pass pass, const Conv2dParams& params,
                           const Operands& t) {
  ConvSignature z = cudnn::conv_signature(pass, t.x.dtype(), t.x.shape(), t.w.shape(), t.y.shape(),
                                          t.bias.defined(), params);
  const void* const addresses[] = {t.x.raw_data(), t.w.raw_data(), z.bias ? t.bias.raw_data() : nullptr,
                                   t.y.raw_data()};
  for (std::size_t i = 0; i < z.alignment.size(); ++i) z.alignment[i] = alignment_of(addresses[i], 16);
  z.rules = plan_rules(context, context.vendor().options());
  if (pass != Graph::Pass::forward) z.rules.reduced_precision = 0;  // whose error is measured there alone
  return z;
}

/// The name of the pass in the account.
const char* account_name(Graph::Pass pass) {
  switch (pass) {
    case Graph::Pass::forward: return "conv2d_forward";
    case Graph::Pass::backward_data: return "conv2d_backward_data";
    case Graph::Pass::backward_weights: return "conv2d_backward_weights";
  }
  return "conv2d";
}

void run_graph(CudaContext& context, const ConvSignature& z, const cudnn::Plan& plan, const Operands& t,
               const void* bias) {
  std::array<void*, 6> pointers{t.x.raw_data(), t.w.raw_data()};
  std::size_t count = 2;
  if (z.bias) pointers[count++] = const_cast<void*>(bias);
  pointers[count++] = t.y.raw_data();
  if (t.sums) {
    pointers[count++] = t.sums->data<float>();
    pointers[count++] = t.sums->data<float>() + z.k;
  }
  const Scratch workspace = context.scratch(plan.workspace_bytes());
  const LaunchScope reported(account_name(z.pass), Queued::vendor,
                             static_cast<cudaStream_t>(context.native_stream()));
  plan.run(context.vendor().impl().cudnn_on(context.native_stream()), std::span(pointers.data(), count),
           workspace.as<void>());
}

void run_product(CudaContext& context, const ConvSignature& z, const cublas::Algorithm& algorithm,
                 const Operands& t) {
  const cublas::MatmulSignature product = *product_of(z);
  const Scratch workspace = context.scratch(algorithm.workspace_bytes);
  const LaunchScope reported(account_name(z.pass), Queued::vendor,
                             static_cast<cudaStream_t>(context.native_stream()));
  const auto run = [&](const Tensor& a, const Tensor& b, const Tensor& y) {
    cublas::run(context.vendor().impl().cublas(), product, algorithm, a.raw_data(), b.raw_data(),
                z.bias ? t.bias.raw_data() : nullptr, y.raw_data(), workspace.as<void>(),
                context.native_stream());
  };
  switch (z.pass) {
    case Graph::Pass::forward: return run(t.x, t.w, t.y);
    case Graph::Pass::backward_data: return run(t.y, t.w, t.x);
    case Graph::Pass::backward_weights: return run(t.y, t.x, t.w);
  }
}

void run_plan(CudaContext& context, const ConvSignature& z, const ConvPlan& plan, const Operands& t) {
  if (plan.product) return run_product(context, z, *plan.product, t);
  run_graph(context, z, *plan.graph, t, z.bias ? t.bias.raw_data() : nullptr);
}

/// Whether a fused relu lets a NaN through, as ours does: with a bias of NaN, all of y must be NaN. Some
/// engines take the maximum of 0 and NaN to be 0, which would hide a diverged model.
bool keeps_nan(CudaContext& context, const ConvSignature& z, const cudnn::Plan& plan, const Operands& t) {
  const AllowSync planning;
  const Scratch bias = context.scratch(t.bias.bytes());
  // All bits set is a NaN in every floating type.
  athanor::detail::set_device_bytes(bias.as<void>(), context.device(), 0xff, t.bias.bytes());
  run_graph(context, z, plan, t, bias.as<void>());
  return dispatch_floating(t.y.dtype(), "conv2d", [&]<class T>() {
    const auto is_nan = [&](std::int64_t i) {
      const auto value = static_cast<Accumulate<T>>(read_back(context, t.y.data<T>() + i));
      return value != value;
    };
    return is_nan(0) && is_nan(t.y.numel() - 1);
  });
}

/// Whether a plan's sums are those of the y that it wrote, closely enough for a norm: means within 1/1000 of
/// the root of the mean square, variances within 1/1000 of their own. What is NaN is not compared.
bool sums_match(CudaContext& context, const Tensor& y, const Tensor& sums) {
  const AllowSync planning;
  const std::int64_t channels = y.dim(-1);
  const Tensor row = Tensor::empty({1 + 2 * channels}, {DType::f64, y.device()});
  kernels::batch_norm_moments(context, y, row);
  const std::vector<double> exact = row.to_vector(), found = sums.to_vector();
  const double n = exact[0];
  constexpr double kTiny = 0x1p-24;  // f16's smallest: what rounds to 0 may be summed before it does
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto at = static_cast<std::size_t>(c), second = static_cast<std::size_t>(channels + c);
    const double mean = exact[1 + at], var = exact[1 + second] / n;
    const kernels::Moments moments = kernels::moments(0, found[at], found[second], n);
    if (std::abs(moments.mean - mean) > 1e-3 * std::sqrt(var + mean * mean) + kTiny) return false;
    if (std::abs(moments.var - var) > 1e-3 * var + 1e-5 * mean * mean + kTiny * kTiny) return false;
  }
  return true;
}

/// Runs one pass by the plan chosen for it, if `impl` does not prefer our own kernel. work(plan) is all of
/// the pass by a plan, trial(plan) the same for measurements, which writes nothing that may not be written
/// again and again, own() the same by ours, and accept(plan) whether a plan does what it must.
template <class Work, class Trial, class Own, class Accept>
Answer run(CudaContext& context, ConvImpl impl, const ConvSignature& z, const Work& work, const Trial& trial,
           const Own& own, const Accept& accepts) {
  struct Steps {
    CudaContext& context;
    const ConvSignature& z;
    const Trial& run;
    const Own& run_own;
    const Accept& accept;

    Vendor::Impl& impl() const { return context.vendor().impl(); }
    std::string key() const { return z.str(); }
    Found<ConvPlan> find(std::size_t most) const {
      return find_conv_plans(impl().cublas(), z, impl().properties, most,
                             context.vendor().options().conv_graphs);
    }
    std::optional<ConvPlan> read(const std::string& text) const {
      return cuda::read(impl().cublas(), z, impl().properties, text);
    }
    std::string write(const ConvPlan& plan) const { return cuda::write(plan); }
    /// A relu, sums, and what is added to, can also be done after a plan without them.
    bool ours_is_next() const {
      return !z.relu && !z.sums && !(z.pass == Graph::Pass::backward_data && z.accumulate);
    }
  };
  Vendor& vendor = context.vendor();
  return serve(vendor.planner(context), vendor.impl().convolutions, z, impl == ConvImpl::automatic,
               Steps{context, z, trial, own, accepts}, work);
}

constexpr auto any_plan = [](const ConvPlan&) { return true; };

}  // namespace

bool vendor_conv_forward(CudaContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                         const Tensor& bias, const Tensor& y) {
  if (!wanted(context, params, x.dtype())) return false;
  const DeviceGuard guard(context.device());
  const Operands t{x, w, bias, y};
  Conv2dParams own = params;
  own.impl = ConvImpl::reference;
  const auto run_as = [&](const ConvSignature& z) {
    const auto work = [&](const ConvPlan& plan) {
      run_plan(context, z, plan, t);
      kernels::activate(context, z.after, y);
    };
    const auto accept = [&](const ConvPlan& plan) {
      if (plan.product) return true;
      if (z.relu && !keeps_nan(context, z, *plan.graph, t)) return false;
      if (!plan.graph->reduced_precision()) return true;
      work(plan);
      return error_beside_ours(context, params, x, w, bias, y) <= z.rules.reduced_precision;
    };
    return run(
        context, params.impl, z, work, work, [&] { kernels::conv2d_forward(context, own, x, w, bias, y); },
        accept);
  };
  ConvSignature z = signature_of(context, Graph::Pass::forward, params, t);
  // Whether a fused relu is ours can only be tried outside of a capture.
  if (z.relu && (!is_capturing(context) || context.vendor().impl().convolutions.find(z))) {
    const Answer fused = run_as(z);
    if (fused != Answer::no_plan) return fused == Answer::done;
  }
  z.relu = false, z.after = params.activation;
  return run_as(z) == Answer::done;
}

std::optional<bool> vendor_conv_forward_sums(CudaContext& context, const Conv2dParams& params,
                                             const Tensor& x, const Tensor& w, const Tensor& y,
                                             const Tensor& sums) {
  if (!wanted(context, params, x.dtype())) return std::nullopt;
  // cuDNN notes nothing of these engines, so only a measurement says whether they are fast.
  const VendorOptions& options = context.vendor().options();
  if (!options.conv_graphs || !options.autotune || context.deterministic ||
      alignment_of(sums.raw_data(), 16) < 16)
    return false;
  const DeviceGuard guard(context.device());
  const Tensor none;
  const Operands t{x, w, none, y, &sums};
  ConvSignature z = signature_of(context, Graph::Pass::forward, params, t);
  z.sums = true, z.rules.reduced_precision = 0;
  // Whether they are faster can only be tried outside of a capture.
  if (is_capturing(context) && !context.vendor().impl().convolutions.find(z)) return false;
  // Two passes. They include one small kernel that a training step does not need.
  const auto apart = [&] {
    const Tensor row = Tensor::empty({1 + 2 * y.dim(-1)}, {DType::f64, y.device()});
    kernels::conv2d_forward(context, params, x, w, none, y);
    kernels::batch_norm_moments(context, y, row);
  };
  const auto work = [&](const ConvPlan& plan) { run_plan(context, z, plan, t); };
  const auto accept = [&](const ConvPlan& plan) {
    work(plan);
    return sums_match(context, y, sums);
  };
  return run(context, ConvImpl::automatic, z, work, work, apart, accept) == Answer::done;
}

bool vendor_conv_backward_data(CudaContext& context, const Conv2dParams& params, const Tensor& dy,
                               const Tensor& w, const Tensor& dx, Write write_dx) {
  if (!wanted(context, params, dy.dtype())) return false;
  const DeviceGuard guard(context.device());
  const Tensor none;
  ConvSignature z = signature_of(context, Graph::Pass::backward_data, params, {dx, w, none, dy});
  z.accumulate = write_dx == Write::accumulate;
  // What is added to must not be added to once per measurement.
  const auto* const known = context.vendor().impl().convolutions.find(z);
  const bool measures = z.accumulate && (!known || known->provisional || known->untried);
  const Tensor trial = measures ? empty_like(dx) : dx;
  Conv2dParams own = params;
  own.impl = ConvImpl::reference;
  const auto to = [&](const Tensor& target) {
    return [&, out = &target](const ConvPlan& plan) { run_plan(context, z, plan, {*out, w, none, dy}); };
  };
  const Answer answer = run(
      context, params.impl, z, to(dx), to(trial),
      [&] { kernels::conv2d_backward_data(context, own, dy, w, trial, write_dx); }, any_plan);
  if (answer != Answer::no_plan || !z.accumulate) return answer == Answer::done;
  const Tensor fresh = empty_like(dx);
  if (!vendor_conv_backward_data(context, params, dy, w, fresh, Write::overwrite)) return false;
  kernels::add_into(context, fresh, dx);
  return true;
}

bool vendor_conv_backward_weights(CudaContext& context, const Conv2dParams& params, const Tensor& x,
                                  const Tensor& dy, const Tensor& dw, Write write_dw, const Tensor& dbias,
                                  Write write_dbias) {
  if (!dw.defined() || !wanted(context, params, x.dtype())) return false;
  const DeviceGuard guard(context.device());
  // cuDNN writes dw in the dtype of x, and does not add. What is small goes through memory of its own.
  const bool direct = write_dw == Write::overwrite && dw.dtype() == x.dtype();
  const Tensor fresh = direct ? dw : Tensor::empty(dw.shape(), x.options());
  const Tensor none;
  ConvSignature z = signature_of(context, Graph::Pass::backward_weights, params, {x, fresh, none, dy});
  z.out = dw.dtype(), z.accumulate = write_dw == Write::accumulate;
  z.alignment[1] = std::min(z.alignment[1], alignment_of(dw.raw_data(), 16));
  const auto work_on = [&](const Tensor& to, const ConvPlan& plan) {
    if (plan.product) return run_plan(context, z, plan, {x, to, none, dy});  // in its dtype, and it adds
    run_plan(context, z, plan, {x, fresh, none, dy});
    if (direct) return;
    if (write_dw == Write::overwrite) return kernels::copy(context, fresh, to);
    kernels::add_into(context, fresh, to);
  };
  Conv2dParams own = params;
  own.impl = ConvImpl::reference;
  // What is added to must not be added to once per measurement.
  Tensor trial;
  const auto target = [&]() -> const Tensor& {
    if (!z.accumulate) return dw;
    if (!trial.defined()) trial = empty_like(dw);
    return trial;
  };
  const Answer answer = run(
      context, params.impl, z, [&](const ConvPlan& plan) { work_on(dw, plan); },
      [&](const ConvPlan& plan) { work_on(target(), plan); },
      [&] { kernels::conv2d_backward_weights(context, own, x, dy, target(), write_dw, none, write_dw); },
      any_plan);
  if (answer != Answer::done) return false;
  if (dbias.defined()) kernels::column_sums(context, dy, dbias, write_dbias);
  return true;
}

}  // namespace athanor::cuda
