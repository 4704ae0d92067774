
#include "kernels/activate.h"
#include "kernels/copy.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/matmul_list.h"
#include "kernels/cuda/vendor_impl.h"
#include "kernels/scratch.h"
#include "tensor/cuda/launch_listener.h"

namespace athanor::cuda {
namespace {

using cublas::Algorithm;
using cublas::MatmulSignature;

/// A product as the choice of plans sees it (plan_choice.h).
struct PlannedMatmul {
  CudaContext& context;
  const MatmulCall& call;
  MatmulSignature signature;

  const cublas::Handle& handle() const { return context.vendor().impl().cublas(); }
  Found<Algorithm> find(std::size_t most, PlanWay) const {
    return {cublas::propose(handle(), signature, most)};
  }
  PlanWay* way() const { return nullptr; }
  std::optional<Algorithm> read(const std::string& text) const {
    return cublas::read(handle(), signature, text);
  }
  const Tensor& result() const { return call.y; }
  bool accumulates() const { return call.accumulates(); }
  bool ours_is_next() const { return true; }
  bool accept(const Algorithm&) const { return true; }

  void run(const Algorithm& algorithm, const Tensor& to) const {
    const Tensor& c = call.accumulates() ? to : call.c;
    run_product(context, "matmul", signature, algorithm,
                {.a = call.a.raw_data(),
                 .b = call.b.raw_data(),
                 .bias = signature.bias ? call.bias.raw_data() : nullptr,
                 .c = c.defined() ? c.raw_data() : nullptr,
                 .y = to.raw_data(),
                 .alpha = call.alpha,
                 .beta = call.beta});
    // What cuBLASLt leaves to do: its own relu turns NaN into 0, and its gelu is the approximation by tanh.
    if (signature.bias_after) kernels::add_into(context, call.bias, to);
    kernels::activate(context, signature.after, to);
  }
  void run_own(const Tensor& to) const { run_first(context, kMatmuls, call.with(MatmulImpl::reference, to)); }
};

}  // namespace

void run_product(CudaContext& context, const char* name, const MatmulSignature& signature,
                 const Algorithm& algorithm, const cublas::Operands& at) {
  const Scratch workspace = context.scratch(algorithm.workspace_bytes);
  const LaunchScope reported(name, Queued::vendor, static_cast<cudaStream_t>(context.native_stream()));
  cublas::run(context.vendor().impl().cublas(), signature, algorithm, at, workspace.as<void>(),
              context.native_stream());
}

bool vendor_fits(CudaContext& context, const MatmulCall& call) {
  return has_type(context, call.a.dtype());
}

bool vendor_matmul(CudaContext& context, const MatmulCall& call) {
  const Tensor &a = call.a, &b = call.b, &bias = call.bias, &y = call.y, &c = call.c;
  const std::optional<GemmLayout> layout = gemm_layout(a, b, y);
  if (!layout) return false;
  const DeviceGuard guard(context.device());

  MatmulSignature z;
  z.layout = *layout;
  z.in = a.dtype(), z.out = y.dtype();
  z.bias = bias.defined() && bias.dtype() == y.dtype() && y.dtype() != DType::f64;
  z.accumulate = c.defined();
  z.tf32 = context.tf32 && z.in == DType::f32;
  z.deterministic = context.deterministic;
  z.alignment = {alignment_of(a.raw_data(), 256), alignment_of(b.raw_data(), 256),
                 alignment_of(y.raw_data(), z.accumulate ? alignment_of(c.raw_data(), 256) : 256),
                 z.bias ? alignment_of(bias.raw_data(), 256) : 256};
  z.after = call.activation, z.bias_after = bias.defined() && !z.bias;

  Vendor& vendor = context.vendor();
  return serve(vendor.planner(context), vendor.impl().matmuls, call.impl == MatmulImpl::automatic,
               PlannedMatmul{context, call, z}) == Answer::done;
}

}  // namespace athanor::cuda
