#include "kernels/cuda/vendor_matmul.h"

#include "kernels/activate.h"
#include "kernels/copy.h"
#include "kernels/cuda/vendor_impl.h"
#include "tensor/cuda/launch_listener.h"

namespace athanor::cuda {
namespace {

using cublas::Algorithm;
using cublas::MatmulSignature;

constexpr std::size_t kMaxWorkspace = std::size_t{32} << 20;  // more is of no use to a product

void run_algorithm(CudaContext& context, const MatmulSignature& z, const Algorithm& algorithm,
                   const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& y) {
  const Scratch workspace = context.scratch(algorithm.workspace_bytes);
  const LaunchScope reported("matmul", Queued::vendor, static_cast<cudaStream_t>(context.native_stream()));
  cublas::run(context.vendor().impl().cublas(), z, algorithm, a.raw_data(), b.raw_data(),
              z.bias ? bias.raw_data() : nullptr, y.raw_data(), workspace.as<void>(),
              context.native_stream());
}

/// What cuBLASLt leaves to do: its own relu turns NaN into 0, and its gelu is the approximation by tanh.
void finish(CudaContext& context, const MatmulSignature& z, const Tensor& bias, const Tensor& y) {
  if (z.bias_after) kernels::add_into(context, bias, y);
  kernels::activate(context, z.after, y);
}

struct Steps {
  CudaContext& context;
  const MatmulSignature& z;
  const Tensor &a, &b, &bias, &y;

  std::string key() const { return z.str(); }
  Found<Algorithm> find(std::size_t most) const {
    return {cublas::propose(context.vendor().impl().cublas(), z, most)};
  }
  std::optional<Algorithm> read(const std::string& text) const {
    return cublas::read(context.vendor().impl().cublas(), z, text);
  }
  std::string write(const Algorithm& algorithm) const { return cublas::write(algorithm); }
  bool accept(const Algorithm&) const { return true; }
  // What is added to must not be added to once per measurement. (y has no other reader if it is replaced.)
  const Tensor& target() const {
    if (!z.accumulate) return y;
    if (!fresh.defined()) fresh = empty_like(y);
    return fresh;
  }
  void run(const Algorithm& algorithm) const {
    run_algorithm(context, z, algorithm, a, b, bias, target());
    finish(context, z, bias, target());
  }
  void run_own() const {
    kernels::matmul(context, MatmulImpl::reference, a, b, bias, z.after, target(),
                    z.accumulate ? Write::accumulate : Write::overwrite);
  }

  mutable Tensor fresh{};
};

}  // namespace

bool vendor_matmul(CudaContext& context, MatmulImpl impl, const Tensor& a, const Tensor& b,
                   const Tensor& bias, Activation activation, const Tensor& y, Write write) {
  if (impl != MatmulImpl::automatic && impl != MatmulImpl::vendor) return false;
  Vendor& vendor = context.vendor();
  if (!vendor.options().enabled || (a.dtype() == DType::bf16 && context.sm() < 80)) return false;
  const std::optional<GemmLayout> layout = gemm_layout(a, b, y);
  if (!layout) return false;
  const DeviceGuard guard(context.device());

  MatmulSignature z;
  z.layout = *layout;
  z.in = a.dtype(), z.out = y.dtype();
  z.bias = bias.defined() && bias.dtype() == y.dtype() && y.dtype() != DType::f64;
  z.accumulate = write == Write::accumulate;
  z.tf32 = context.tf32 && z.in == DType::f32;
  z.deterministic = context.deterministic;
  z.alignment = {alignment_of(a.raw_data(), 256), alignment_of(b.raw_data(), 256),
                 alignment_of(y.raw_data(), 256), z.bias ? alignment_of(bias.raw_data(), 256) : 256};
  z.workspace_bytes = std::min(vendor.options().workspace_bytes, kMaxWorkspace);

  z.after = activation, z.bias_after = bias.defined() && !z.bias;

  const Answer answer =
      serve(vendor.planner(context), vendor.impl().matmuls, z, impl == MatmulImpl::automatic,
            Steps{context, z, a, b, bias, y},
            [&](const Algorithm& algorithm) { run_algorithm(context, z, algorithm, a, b, bias, y); });
  if (answer != Answer::done) return false;
  finish(context, z, bias, y);
  return true;
}

}  // namespace athanor::cuda
