#include <algorithm>
#include <bit>
#include <cstring>

#include "tensor/cuda/capture.h"
#include "tensor/cuda/device.h"
#include "tensor/cuda/launch_listener.h"
#include "tensor/cuda/pinned_pool.h"
#include "tensor/detail/device_memory.h"
#include "tensor/detail/stream_state.h"

namespace athanor {

constinit thread_local cuda::LaunchListener* cuda::detail::launch_listener = nullptr;

namespace {

cudaStream_t native(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

// Sizes of staging blocks are powers of two in this range, so that few sizes serve all copies.
constexpr std::size_t kMinStage = 4 * 1024, kMaxStage = 4 * 1024 * 1024;
// A copy of more pageable memory waits at intervals, to limit page-locked memory.
constexpr std::size_t kMaxUnderWay = 64 * 1024 * 1024;

// The device may read host memory long after the call, when the caller has reused it. So it reads a
// page-locked copy, which is not reused before it has been read.
void upload_staged(std::byte* to, const std::byte* from, std::size_t bytes, const Stream& stream,
                   const Site& site) {
  if (bytes > kMaxUnderWay) count_host_sync("copy", site);
  for (std::size_t at = 0; at < bytes; at += kMaxStage) {
    if (at > 0 && at % kMaxUnderWay == 0) {
      cuda::refuse_wait_in_capture("copy");
      ATH_TRY(cudaStreamSynchronize(native(stream)));
    }
    const std::size_t part = std::min(bytes - at, kMaxStage);
    const Ref<cuda::PinnedBlock> stage = cuda::take_pinned(std::bit_ceil(std::max(part, kMinStage)));
    std::memcpy(stage->data(), from + at, part);
    const cuda::LaunchScope reported("copy to device", cuda::Queued::copy, native(stream), part);
    ATH_TRY(cudaMemcpyAsync(to + at, stage->data(), part, cudaMemcpyHostToDevice, native(stream)));
    stage->record(stream);
  }
}

void upload(void* to, Device device, const void* from, std::size_t bytes, const Site& site) {
  const Stream stream = current_stream(device);
  const cuda::DeviceGuard guard(device);
  count_copy(CopyKind::to_device, bytes);
  if (!cuda::record_if_pinned(from, stream))
    return upload_staged(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, stream,
                         site);
  const cuda::LaunchScope reported("copy to device", cuda::Queued::copy, native(stream), bytes);
  ATH_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, native(stream)));
}

void download(void* to, const void* from, Device device, std::size_t bytes, const Site& site) {
  const Stream stream = current_stream(device);
  const cuda::DeviceGuard guard(device);
  const bool pinned = cuda::record_if_pinned(to, stream);
  if (!pinned) {
    count_host_sync("copy", site);
    cuda::refuse_wait_in_capture("copy");
  }
  count_copy(CopyKind::to_host, bytes);
  {
    const cuda::LaunchScope reported("copy to host", cuda::Queued::copy, native(stream), bytes);
    ATH_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, native(stream)));
  }
  if (!pinned) ATH_TRY(cudaStreamSynchronize(native(stream)));
}

// On the destination's stream: after the source's work queued so far, and before its later work, which may
// overwrite the source.
void copy_across(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes) {
  const Stream reader = current_stream(to_device), writer = current_stream(from_device);
  Event written(from_device), read(to_device);
  written.record(writer);
  reader.wait(written);
  {
    const cuda::DeviceGuard guard(to_device);
    ATH_TRY(cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, bytes, native(reader)));
  }
  read.record(reader);
  writer.wait(read);
}

}  // namespace

void detail::copy_device_bytes(void* to, Device to_device, const void* from, Device from_device,
                               std::size_t bytes, const Site& site) {
  if (bytes == 0) return;
  if (from_device.is_cpu()) return upload(to, to_device, from, bytes, site);
  if (to_device.is_cpu()) return download(to, from, from_device, bytes, site);
  count_copy(CopyKind::on_device, bytes);
  if (to_device != from_device) return copy_across(to, to_device, from, from_device, bytes);
  const cuda::DeviceGuard guard(to_device);
  const cudaStream_t stream = native(current_stream(to_device));
  const cuda::LaunchScope reported("copy on device", cuda::Queued::copy, stream, 2 * bytes);
  ATH_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

void detail::set_device_bytes(void* data, Device device, int value, std::size_t bytes) {
  if (bytes == 0) return;
  const cuda::DeviceGuard guard(device);
  const cudaStream_t stream = native(current_stream(device));
  const cuda::LaunchScope reported("fill", cuda::Queued::fill, stream, bytes);
  ATH_TRY(cudaMemsetAsync(data, value, bytes, stream));
}

}  // namespace athanor
