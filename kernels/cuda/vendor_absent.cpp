#include "kernels/cuda/vendor.h"
#include "kernels/cuda/vendor_conv.h"
#include "kernels/cuda/vendor_matmul.h"

// A build without cuDNN and cuBLASLt: the answer is always no.

namespace athanor::cuda {

struct Vendor::Impl {};

std::filesystem::path default_plan_directory() {
  return {};
}

Vendor::Vendor(Device device) : device_(device) {}
Vendor::~Vendor() = default;
void Vendor::set_options(VendorOptions options) {
  check(options);
  options_ = std::move(options);
}
void Vendor::clear() {}

bool vendor_conv_forward(CudaContext&, const Conv2dParams&, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&) {
  return false;
}
std::optional<bool> vendor_conv_forward_sums(CudaContext&, const Conv2dParams&, const Tensor&, const Tensor&,
                                             const Tensor&, const Tensor&) {
  return std::nullopt;
}
bool vendor_conv_backward_data(CudaContext&, const Conv2dParams&, const Tensor&, const Tensor&, const Tensor&,
                               Write) {
  return false;
}
bool vendor_conv_backward_weights(CudaContext&, const Conv2dParams&, const Tensor&, const Tensor&,
                                  const Tensor&, Write, const Tensor&, Write) {
  return false;
}
bool vendor_matmul(CudaContext&, MatmulImpl, const Tensor&, const Tensor&, const Tensor&, Activation,
                   const Tensor&, Write) {
  return false;
}

bool has_vendor() {
  return false;
}

}  // namespace athanor::cuda
