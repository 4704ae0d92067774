#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cuda/conv_plan.h"
#include "kernels/cuda/cublas_matmul.h"
#include "kernels/cuda/cudnn_conv.h"
#include "kernels/cuda/plan_choice.h"
#include "kernels/cuda/vendor.h"
#include "tensor/cuda/device.h"

// What a Vendor holds, for the vendor_*.cpp alone.

namespace athanor::cuda {

struct Vendor::Impl {
  static constexpr std::size_t kCapacity = 1024;  // signatures of each kind

  explicit Impl(const Vendor& vendor);

  const cudnn::Handle& cudnn_on(void* stream);
  const cublas::Handle& cublas();

  cudnn::DeviceProperties properties;
  /// What a plan is for, and what it is made by: driver, libraries, and our kernels, which it was measured
  /// against.
  std::string device, made_by;
  PlanFolder folder;
  BoundedCache<cudnn::ConvSignature, Choice<ConvPlan>> convolutions{kCapacity};
  BoundedCache<cublas::MatmulSignature, Choice<cublas::Algorithm>> matmuls{kCapacity};

 private:
  std::optional<cudnn::Handle> cudnn_;
  std::optional<cublas::Handle> cublas_;
};

cudnn::PlanRules plan_rules(const CudaContext& context, const VendorOptions& options);
/// The largest power of two, at most `most`, that an address is a multiple of.
std::int64_t alignment_of(const void* address, std::int64_t most);

}  // namespace athanor::cuda
