#include "kernels/cuda/context.h"

#include <array>

#include "kernels/cuda/vendor.h"
#include "tensor/cuda/runtime.h"
#include "tensor/detail/device_memory.h"
#include "tensor/detail/stream_state.h"

namespace athanor {

CudaContext::CudaContext(Device device) : device_(device) {
  const DeviceInfo& info = device_info(device);
  sm_ = info.sm();
  multiprocessors_ = info.multiprocessors;
  own_step_memory_ = std::make_unique<Scratch>(sizeof(StepState), device);
  const StepState fresh;
  detail::copy_device_bytes(own_step_memory_->as<StepState>(), device, &fresh, kCpu, sizeof fresh,
                            Site::current());
  // Once for all streams that will read it; and they must be done with it before it is given back.
  const AllowSync once;
  current_stream(device).synchronize();
  set_own_step(own_step_memory_->as<StepState>());
}

CudaContext::~CudaContext() {
  try {
    const AllowSync once;
    synchronize(device_);
  } catch (const BackendError&) {  // nothing runs on a device that has failed, or that the process has left
  }
}

void* CudaContext::native_stream() const {
  return detail::current_stream_state(device_).native;
}

cuda::Vendor& CudaContext::vendor() {
  if (!vendor_) vendor_ = std::make_unique<cuda::Vendor>(device_);
  return *vendor_;
}

CudaContext& cuda_context(Device device) {
  // Checked on the host, once: kernels do not ask again.
  thread_local std::array<std::unique_ptr<CudaContext>, detail::kMaxDevices> contexts;
  const auto index = static_cast<std::size_t>(device.index);
  ATH_CHECK(device.is_cuda() && device.index >= 0 && index < contexts.size(),
            "device: must be a CUDA device, but got {}", device.str());
  // A kernel goes to streams of the thread's current device alone.
  if (cuda_device_count() > 1) ATH_TRY(cudaSetDevice(device.index));
  if (!contexts[index]) contexts[index] = std::make_unique<CudaContext>(device);
  return *contexts[index];
}

}  // namespace athanor
