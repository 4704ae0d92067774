#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cuda/context.h"
#include "kernels/cuda/cublas_matmul.h"
#include "kernels/cuda/plan_choice.h"
#include "kernels/cuda/vendor.h"
#include "kernels/cuda/vendor_conv_plan.h"
#include "tensor/cuda/device.h"

// What a Vendor holds, for the vendor_*.cpp alone.

namespace athanor::cuda {

struct Vendor::Impl {
  static constexpr std::size_t kCapacity = 1024;  // signatures of each kind

  explicit Impl(const Vendor& vendor);

  cudnn::Handle& handle();
  const cudnn::Handle& cudnn_on(void* stream);
  const cublas::Handle& cublas();

  /// Throws BackendError where cuDNN does not describe the device.
  const cudnn::DeviceProperties& properties();
  /// What plans are made for in that way.
  cudnn::Target target(PlanWay made);

  PlanWay way = PlanWay::properties;  ///< in which plans that run are made
  /// What a plan is for, and what it is made by: driver, libraries, and our kernels, which it was measured
  /// against.
  std::string device, made_by;
  PlanFolder folder;
  BoundedCache<cudnn::ConvSignature, Choice<ConvPlan>> convolutions{kCapacity};
  BoundedCache<cublas::MatmulSignature, Choice<cublas::Algorithm>> matmuls{kCapacity};

 private:
  int index_;
  std::optional<cudnn::DeviceProperties> properties_;
  std::optional<cudnn::Handle> cudnn_;
  std::optional<cublas::Handle> cublas_;
};

/// Whether the libraries know a floating type on that GPU.
inline bool has_type(const CudaContext& context, DType dtype) {
  return dtype != DType::bf16 || context.sm() >= 80;
}
/// Queues a product by cuBLASLt, as the launch of that name.
void run_product(CudaContext& context, const char* name, const cublas::MatmulSignature& signature,
                 const cublas::Algorithm& algorithm, const cublas::Operands& at);
/// The largest power of two, at most `most`, that an address is a multiple of.
std::int64_t alignment_of(const void* address, std::int64_t most);

}  // namespace athanor::cuda
