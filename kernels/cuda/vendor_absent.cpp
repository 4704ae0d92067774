#include "kernels/cuda/context.h"
#include "kernels/cuda/conv_list.h"
#include "kernels/cuda/matmul_list.h"
#include "kernels/cuda/vendor.h"

// A build without cuDNN and cuBLASLt: nothing is theirs.

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

bool has_vendor() {
  return false;
}

bool vendor_fits(CudaContext&, const ConvCall&) {
  return false;
}
bool vendor_conv(CudaContext&, const ConvCall&) {
  return false;
}
bool vendor_fits(CudaContext&, const MatmulCall&) {
  return false;
}
bool vendor_matmul(CudaContext&, const MatmulCall&) {
  return false;
}

}  // namespace athanor::cuda
