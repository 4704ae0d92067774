#include "kernels/cuda/vendor.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "kernels/cuda/context.h"
#include "kernels/cuda/vendor_impl.h"
#include "tensor/cuda/runtime.h"

namespace athanor::cuda {

std::filesystem::path default_plan_directory() {
  const auto from = [](const char* variable, const char* below) -> std::filesystem::path {
    const char* const value = std::getenv(variable);
    return value && *value ? std::filesystem::path(value) / below : std::filesystem::path();
  };
  const std::filesystem::path path = from("XDG_CACHE_HOME", "athanor/plans");
  return path.empty() ? from("HOME", ".cache/athanor/plans") : path;
}

// Raise it when our products or convolutions become faster or slower: what was measured against them is
// measured again.
constexpr int kOwnKernels = 3;

namespace {

/// What plans are made by: with another driver or library they may not run, or not be the fastest.
std::string makers() {
  int driver = 0, runtime = 0;
  ATH_TRY(cudaDriverGetVersion(&driver));
  ATH_TRY(cudaRuntimeGetVersion(&runtime));
  const auto cuda_version = [](int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  };
  return fmt::format("driver {} for CUDA {}, CUDA {}, cuDNN {}, cuBLASLt {}, athanor kernels {}",
                     kernel_driver_version(), cuda_version(driver), cuda_version(runtime),
                     dotted(cudnn::version(), 10000, 100), dotted(cublas::version(), 10000, 100),
                     kOwnKernels);
}

std::string named(const DeviceInfo& info) {
  return fmt::format("{} sm_{} x{}", info.name, info.sm(), info.multiprocessors);
}

}  // namespace

Vendor::Impl::Impl(const Vendor& vendor)
    : device(named(device_info(vendor.device()))),
      made_by(makers()),
      folder(vendor.options().plan_directory, device, made_by),
      index_(vendor.device().index) {}

const cudnn::DeviceProperties& Vendor::Impl::properties() {
  if (!properties_) properties_.emplace(cudnn::DeviceProperties::of_device(index_));
  return *properties_;
}

cudnn::Target Vendor::Impl::target(PlanWay made) {
  if (made == PlanWay::handle) return cudnn::Target(handle());
  return {properties(), made == PlanWay::text};
}

cudnn::Handle& Vendor::Impl::handle() {
  if (!cudnn_) cudnn_.emplace();
  return *cudnn_;
}

const cudnn::Handle& Vendor::Impl::cudnn_on(void* stream) {
  handle().set_stream(stream);
  return *cudnn_;
}

const cublas::Handle& Vendor::Impl::cublas() {
  if (!cublas_) cublas_.emplace();
  return *cublas_;
}

Vendor::Vendor(Device device) : device_(device) {}
Vendor::~Vendor() = default;

Vendor::Impl& Vendor::impl() {
  if (!impl_) impl_ = std::make_unique<Impl>(*this);
  return *impl_;
}

void Vendor::set_options(VendorOptions options) {
  check(options);
  options_ = std::move(options);
  if (impl_) impl_->folder = PlanFolder(options_.plan_directory, impl_->device, impl_->made_by);
}

void Vendor::clear() {
  if (!impl_) return;
  impl_->convolutions.clear();
  impl_->matmuls.clear();
}

Planner Vendor::planner(CudaContext& context) {
  return {context, options_, log_, impl().folder};
}

std::int64_t alignment_of(const void* address, std::int64_t most) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  return bits == 0 ? most : std::min(static_cast<std::int64_t>(bits & (~bits + 1)), most);
}

bool has_vendor() {
  return true;
}

}  // namespace athanor::cuda
