#include "kernels/cuda/autotune.h"

#include <algorithm>
#include <array>

#include <cuda_runtime.h>

#include "kernels/cuda/vendor.h"
#include "tensor/cuda/runtime.h"
#include "tensor/detail/device_memory.h"

namespace athanor::cuda {

void check(const VendorOptions& options) {
  ATH_CHECK(options.candidates >= 1, "vendor options: candidates must be 1 or more, but got {}",
            options.candidates);
}

Stopwatch::Stopwatch(const CudaContext& context)
    : stream_(current_stream(context.device())),
      // Writing twice the cache's size leaves nothing of what was there.
      flush_bytes_(2 * std::max(device_info(context.device()).l2_bytes, std::size_t{1} << 20)),
      flush_(context.scratch(flush_bytes_)) {
  for (int i = 0; i < kRuns; ++i) {
    begin_.emplace_back(context.device(), Event::Timing::on);
    end_.emplace_back(context.device(), Event::Timing::on);
  }
}

void Stopwatch::flush_cache() const {
  athanor::detail::set_device_bytes(flush_.as<std::byte>(), stream_.device(), 0, flush_bytes_);
}

double Stopwatch::median() const {
  std::array<double, kRuns> ms;
  for (std::size_t i = 0; i < kRuns; ++i) ms[i] = elapsed(static_cast<int>(i));
  std::nth_element(ms.begin(), ms.begin() + kRuns / 2, ms.end());
  return ms[kRuns / 2];
}

bool is_capturing(const CudaContext& context) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ATH_TRY(cudaStreamIsCapturing(static_cast<cudaStream_t>(context.native_stream()), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace athanor::cuda
