#include "kernels/cuda/vendor_norm.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "kernels/cuda/read_back.h"
#include "kernels/cuda/vendor_impl.h"
#include "tensor/detail/device_memory.h"

namespace athanor::cuda {
namespace {

using cudnn::NormSignature;
using cudnn::Plan;

NormSignature signature_of(CudaContext& context, NormSignature::Pass pass, const Tensor& x,
                           std::initializer_list<const void*> addresses) {
  NormSignature z;
  z.pass = pass;
  z.dtype = x.dtype();
  z.c = x.dim(-1);
  const bool images = x.rank() == 4;
  z.n = images ? x.shape()[0] : x.numel() / z.c;
  z.h = images ? x.shape()[1] : 1;
  z.w = images ? x.shape()[2] : 1;
  for (const void* address : addresses) z.alignment = std::min(z.alignment, alignment_of(address, 16));
  z.rules = plan_rules(context, context.vendor().options());
  return z;
}

/// A call's pointers, in the order norm_graph() says.
struct Pointers {
  std::array<void*, 13> at{};
  std::size_t count = 0;

  void add(const void* pointer) { at[count++] = const_cast<void*>(pointer); }
};

void run_plan(CudaContext& context, const Plan& plan, const Pointers& pointers) {
  const Scratch workspace = context.scratch(plan.workspace_bytes());
  plan.run(context.vendor().impl().cudnn_on(context.native_stream()),
           std::span(pointers.at.data(), pointers.count), workspace.as<void>());
}

template <class Accept> struct Steps : PlanSteps {
  const NormSignature& z;
  const Pointers& trial;
  const Accept& accept;

  std::string key() const { return disk_key(z.str(), cudnn::version()); }
  Found<Plan> find(std::size_t most) const { return cudnn::find_norm_plans(z, properties(), most); }
  void run(const Plan& plan) const { run_plan(context, plan, trial); }
};

/// `trial` is what may be run any number of times, `real` what is to be done.
template <class Accept>
bool run(CudaContext& context, const NormSignature& z, const Pointers& trial, const Pointers& real,
         const Accept& accept) {
  Vendor& vendor = context.vendor();
  return serve(vendor.planner(context), vendor.impl().norms, z, false,
               Steps<Accept>{{context}, z, trial, accept},
               [&](const Plan& plan) { run_plan(context, plan, real); }) == Answer::done;
}

bool wanted(CudaContext& context, const Tensor& x, const Tensor& gamma) {
  const VendorOptions& options = context.vendor().options();
  return options.enabled && options.runtime_compiled && gamma.defined() && x.dtype() != DType::f64 &&
         (x.dtype() != DType::bf16 || context.sm() >= 80);
}

}  // namespace

bool vendor_batch_norm_forward(CudaContext& context, Activation activation, const Tensor& x,
                               const Tensor& gamma, const Tensor& beta, double eps,
                               const kernels::RunningStats& running, const Tensor& residual,
                               const Tensor& stats, const Tensor& y) {
  const bool relu = activation == Activation::relu;
  if (!beta.defined() || !wanted(context, x, gamma) || (activation != Activation::none && !relu))
    return false;
  const DeviceGuard guard(context.device());
  const auto channels = static_cast<std::size_t>(x.dim(-1));
  // Running statistics that nobody keeps, and those of trials: they move with every run.
  const Scratch unused = context.scratch(2 * channels * sizeof(float));
  athanor::detail::set_device_bytes(unused.as<void>(), context.device(), 0, 2 * channels * sizeof(float));
  float* const idle[2] = {unused.as<float>(), unused.as<float>() + channels};
  const bool keeps = running.mean.defined();
  const auto epsilon = static_cast<float>(eps), momentum = static_cast<float>(running.momentum);
  float* const mean = stats.data<float>();

  const auto pointers = [&](const void* shift, bool trial) {
    const void* const running_mean = keeps && !trial ? running.mean.data<float>() : idle[0];
    const void* const running_var = keeps && !trial ? running.var.data<float>() : idle[1];
    Pointers p;
    p.add(x.raw_data()), p.add(gamma.raw_data()), p.add(shift), p.add(&epsilon), p.add(&momentum);
    p.add(running_mean), p.add(running_var), p.add(mean), p.add(mean + channels);
    p.add(running_mean), p.add(running_var);
    if (residual.defined()) p.add(residual.raw_data());
    p.add(y.raw_data());
    return p;
  };
  const Pointers trial = pointers(beta.raw_data(), true), real = pointers(beta.raw_data(), false);

  NormSignature z =
      signature_of(context, NormSignature::Pass::forward, x,
                   {x.raw_data(), y.raw_data(), gamma.raw_data(), beta.raw_data(), mean, mean + channels,
                    keeps ? running.mean.raw_data() : nullptr, keeps ? running.var.raw_data() : nullptr,
                    idle[1], residual.defined() ? residual.raw_data() : nullptr});
  z.relu = relu;
  z.residual = residual.defined();
  if (relu && is_capturing(context) && !context.vendor().impl().norms.find(z)) return false;
  return run(context, z, trial, real, [&](const Plan& plan) {
    if (!relu) return true;
    // As for convolutions: a NaN must come through.
    const AllowSync planning;
    const Scratch nan = context.scratch(channels * sizeof(float));
    athanor::detail::set_device_bytes(nan.as<void>(), context.device(), 0xff, channels * sizeof(float));
    run_plan(context, plan, pointers(nan.as<void>(), true));
    return dispatch_floating(y.dtype(), "batch_norm", [&]<class T>() {
      const auto last = static_cast<Accumulate<T>>(read_back(context, y.data<T>() + y.numel() - 1));
      return last != last;
    });
  });
}

bool vendor_batch_norm_backward(CudaContext& context, const kernels::BatchNormBackward& t) {
  const bool plain = t.activation == Activation::none && t.training && t.dx.defined() &&
                     t.dgamma.tensor.defined() && t.dbeta.tensor.defined() &&
                     t.dgamma.write == Write::overwrite && t.dbeta.write == Write::overwrite &&
                     !t.dresidual.defined();
  if (!plain || !wanted(context, t.x, t.gamma)) return false;
  const DeviceGuard guard(context.device());
  const float* const mean = t.stats.data<float>();
  const float* const inverse_deviation = mean + t.x.dim(-1);
  Pointers p;
  for (const void* pointer : std::initializer_list<const void*>{
           t.dy.raw_data(), t.x.raw_data(), t.gamma.raw_data(), mean, inverse_deviation,
           t.dgamma.tensor.raw_data(), t.dbeta.tensor.raw_data(), t.dx.raw_data()})
    p.add(pointer);
  const NormSignature z =
      signature_of(context, NormSignature::Pass::backward, t.x,
                   {t.dy.raw_data(), t.x.raw_data(), t.gamma.raw_data(), mean, inverse_deviation,
                    t.dgamma.tensor.raw_data(), t.dbeta.tensor.raw_data(), t.dx.raw_data()});
  return run(context, z, p, p, [](const Plan&) { return true; });
}

}  // namespace athanor::cuda
