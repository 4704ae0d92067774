#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

  /// What a signature is kept under on disk: with the device, the driver's and the library's version, which
  /// its plan is for, and that of our kernels, which it was measured against.
  std::string disk_key(const std::string& signature, std::int64_t library_version) const;
  const cudnn::Handle& cudnn_on(void* stream);
  const cublas::Handle& cublas();

  cudnn::DeviceProperties properties;
  PlanFolder folder;
  BoundedCache<cudnn::ConvSignature, Choice<cudnn::Plan>> convolutions{kCapacity};
  BoundedCache<cublas::MatmulSignature, Choice<cublas::Algorithm>> matmuls{kCapacity};

 private:
  std::optional<cudnn::Handle> cudnn_;
  std::optional<cublas::Handle> cublas_;
};

/// The steps that all plans of cuDNN take (plan_choice.h).
struct PlanSteps {
  CudaContext& context;

  Vendor::Impl& impl() const { return context.vendor().impl(); }
  const cudnn::DeviceProperties& properties() const { return impl().properties; }
  std::string disk_key(const std::string& signature, std::int64_t library_version) const {
    return impl().disk_key(signature, library_version);
  }
  std::optional<cudnn::Plan> read(const std::string& text) const {
    return cudnn::Plan::from_json(text, properties());
  }
  std::string write(const cudnn::Plan& plan) const { return plan.json(); }
};

cudnn::PlanRules plan_rules(const CudaContext& context, const VendorOptions& options);
/// The largest power of two, at most `most`, that an address is a multiple of.
std::int64_t alignment_of(const void* address, std::int64_t most);

}  // namespace athanor::cuda
