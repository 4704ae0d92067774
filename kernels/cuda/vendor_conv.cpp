#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/activate.h"
#include "kernels/copy.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/conv_list.h"
#include "kernels/cuda/read_back.h"
#include "kernels/cuda/vendor_impl.h"
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
  z.sums = call.sums != nullptr;
  z.rules.tf32 = context.tf32, z.rules.deterministic = context.deterministic;
  return z;
}

/// A convolution as the choice of plans sees it (plan_choice.h).
struct PlannedConv {
  CudaContext& context;
  const ConvCall& call;
  ConvSignature signature;

  Vendor::Impl& impl() const { return context.vendor().impl(); }
  Found<ConvPlan> find(std::size_t most) const {
    return find_conv_plans(impl().cublas(), signature, impl().properties, most);
  }
  std::optional<ConvPlan> read(const std::string& text) const {
    return cuda::read(impl().cublas(), signature, impl().properties, text);
  }
  const Tensor& result() const { return call.result(); }
  bool accumulates() const { return call.accumulates(); }
  /// A relu, sums, and what is added to, can also be done after a plan without them.
  bool ours_is_next() const {
    return !signature.relu && !signature.sums &&
           !(signature.pass == ConvPass::backward_data && signature.accumulate);
  }

  bool accept(const ConvPlan& plan) const {
    if (signature.relu) return keeps_nan(*plan.graph);
    if (!signature.sums) return true;
    run(plan, call.y);
    return sums_match();
  }

  void run(const ConvPlan& plan, const Tensor& to) const {
    const ConvCall here = call.with(call.params.impl, to);
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
    ConvCall own = call.with(call.sums ? call.params.impl : ConvImpl::reference, to);
    own.sums = nullptr;
    run_conv(context, own);
    if (call.sums) kernels::batch_norm_moments(context, to, moments_row());
  }

 private:
  Tensor moments_row() const {
    return Tensor::empty({1 + 2 * call.y.dim(-1)}, {DType::f64, call.y.device()});
  }
  void run_graph(const cudnn::Plan& plan, const ConvCall& t, const Tensor& bias) const {
    std::array<void*, 6> pointers{t.x.raw_data(), t.w.raw_data()};
    std::size_t count = 2;
    if (signature.bias) pointers[count++] = bias.raw_data();
    pointers[count++] = t.y.raw_data();
    if (t.sums) {
      pointers[count++] = t.sums->data<float>();
      pointers[count++] = t.sums->data<float>() + signature.k;
    }
    const Scratch workspace = context.scratch(plan.workspace_bytes());
    const LaunchScope reported(kernel_name(call.pass), Queued::vendor,
                               static_cast<cudaStream_t>(context.native_stream()));
    plan.run(impl().cudnn_on(context.native_stream()), std::span(pointers.data(), count),
             workspace.as<void>());
  }

  void run_product(const cublas::Algorithm& algorithm, const ConvCall& t) const {
    const bool forward = call.pass == ConvPass::forward, data = call.pass == ConvPass::backward_data;
    cuda::run_product(context, kernel_name(call.pass), *product_of(signature), algorithm, forward ? t.x : t.y,
                      forward || data ? t.w : t.x, t.bias, t.result());
  }

  /// Whether a fused relu lets a NaN through, as ours does: with a bias of NaN, all of y must be NaN. Some
  /// engines take the maximum of 0 and NaN to be 0, which would hide a diverged model.
  bool keeps_nan(const cudnn::Plan& plan) const {
    const AllowSync planning;
    const Tensor &y = call.y, bias = empty_like(call.bias);
    // All bits set is a NaN in every floating type.
    athanor::detail::set_device_bytes(bias.raw_data(), context.device(), 0xff, bias.bytes());
    run_graph(plan, call, bias);
    return dispatch_floating(y.dtype(), "conv2d", [&]<class T>() {
      const auto is_nan = [&](std::int64_t i) {
        return std::isnan(static_cast<Accumulate<T>>(read_back(context, y.data<T>() + i)));
      };
      return is_nan(0) && is_nan(y.numel() - 1);
    });
  }

  /// Whether a plan's sums are those of the y that it wrote, closely enough for a norm: means within 1/1000
  /// of the root of the mean square, variances within 1/1000 of their own. What is NaN is not compared.
  bool sums_match() const {
    const AllowSync planning;
    const std::int64_t channels = call.y.dim(-1);
    const Tensor row = moments_row();
    kernels::batch_norm_moments(context, call.y, row);
    const std::vector<double> exact = row.to_vector(), found = call.sums->to_vector();
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
    return serve(vendor.planner(context), known, call.sums || call.params.impl == ConvImpl::automatic,
                 PlannedConv{context, call, z});
  };
  // Some things can only be tried outside of a capture.
  const auto may_try = [&](const ConvSignature& z) { return !is_capturing(context) || known.find(z); };
  ConvSignature z = signature_of(context, call);
  if (call.sums) {
    // cuDNN notes nothing of these engines, so only a measurement says whether they are fast.
    return vendor.options().autotune && !context.deterministic &&
           alignment_of(call.sums->raw_data(), 16) == 16 && may_try(z) && run(z) == Answer::done;
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
