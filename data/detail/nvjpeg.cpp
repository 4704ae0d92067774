// JPEG files decoded by nvJPEG. Its library is loaded by runs that use it, so other machines need none.

#include <chrono>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <dlfcn.h>
#include <nvjpeg.h>

#include "data/device_jpeg.h"
#include "tensor/base/error.h"
#include "tensor/cuda/device.h"
#include "tensor/cuda/runtime.h"

namespace athanor {

template <> struct detail::StatusTraits<nvjpegStatus_t> {
  static constexpr const char* library = "nvJPEG";
  static bool ok(nvjpegStatus_t status) { return status == NVJPEG_STATUS_SUCCESS; }
  static std::string text(nvjpegStatus_t status) {
    switch (status) {
      case NVJPEG_STATUS_SUCCESS: return "success";
      case NVJPEG_STATUS_NOT_INITIALIZED: return "not initialized";
      case NVJPEG_STATUS_INVALID_PARAMETER: return "invalid parameter";
      case NVJPEG_STATUS_BAD_JPEG: return "bad JPEG";
      case NVJPEG_STATUS_JPEG_NOT_SUPPORTED: return "JPEG not supported";
      case NVJPEG_STATUS_ALLOCATOR_FAILURE: return "out of memory";
      case NVJPEG_STATUS_EXECUTION_FAILED: return "execution failed";
      case NVJPEG_STATUS_ARCH_MISMATCH: return "architecture mismatch";
      case NVJPEG_STATUS_INTERNAL_ERROR: return "internal error";
      case NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED: return "implementation not supported";
      case NVJPEG_STATUS_INCOMPLETE_BITSTREAM: return "incomplete bitstream";
    }
    return "status " + std::to_string(static_cast<int>(status));
  }
};

namespace {

struct NvJpegApi {
  decltype(&nvjpegCreateEx) create;
  decltype(&nvjpegDestroy) destroy;
  decltype(&nvjpegJpegStateCreate) create_state;
  decltype(&nvjpegJpegStateDestroy) destroy_state;
  decltype(&nvjpegDecodeBatchedInitialize) begin_batch;
  decltype(&nvjpegDecodeBatched) decode;
};

NvJpegApi load_nvjpeg() {
  const std::string name = "libnvjpeg.so." + std::to_string(NVJPEG_VER_MAJOR);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* const why = library ? nullptr : dlerror();
  const std::string missing = why ? why : "";
  if (!library) library = dlopen(ATHANOR_NVJPEG_LIBRARY, RTLD_NOW | RTLD_LOCAL);  // its path at build time
  ATH_CHECK(library,
            "--decode gpu: needs the library of nvJPEG, but there is none: {}; install libnvjpeg, point "
            "LD_LIBRARY_PATH to it, or use --decode cpu",
            missing);
  NvJpegApi api{};
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    ATH_CHECK(function, "--decode gpu: {} must have {}, but is too old; or use --decode cpu", name, symbol);
  };
  find(api.create, "nvjpegCreateEx");
  find(api.destroy, "nvjpegDestroy");
  find(api.create_state, "nvjpegJpegStateCreate");
  find(api.destroy_state, "nvjpegJpegStateDestroy");
  find(api.begin_batch, "nvjpegDecodeBatchedInitialize");
  find(api.decode, "nvjpegDecodeBatched");
  return api;
}

const NvJpegApi& nvjpeg() {
  static const NvJpegApi api = load_nvjpeg();
  return api;
}

class NvJpeg final : public DeviceJpeg {
 public:
  explicit NvJpeg(Device device) : device_(device), api_(nvjpeg()), done_(device) {
    const DeviceGuard guard(device);
    // Engines of their own leave the multiprocessors to training. GPUs without them decode there.
    constexpr unsigned kFlags = NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION;  // as libjpeg does
    if (api_.create(NVJPEG_BACKEND_HARDWARE, nullptr, nullptr, kFlags, &handle_) != NVJPEG_STATUS_SUCCESS) {
      handle_ = nullptr;
      ATH_TRY(api_.create(NVJPEG_BACKEND_GPU_HYBRID, nullptr, nullptr, kFlags, &handle_));
    }
    const nvjpegStatus_t status = api_.create_state(handle_, &state_);
    if (status != NVJPEG_STATUS_SUCCESS) api_.destroy(handle_);
    ATH_TRY(status);
  }
  ~NvJpeg() override {
    try {
      wait();
      const DeviceGuard guard(device_);
      api_.destroy_state(state_);
      api_.destroy(handle_);
    } catch (const Error&) {  // the device has failed, and its memory is lost
    }
  }

  void decode(std::span<const Job> jobs) override {
    if (jobs.empty()) return;
    const DeviceGuard guard(device_);
    const Stream stream = current_stream(device_);
    wait();  // the state's memory serves one batch at a time
    files_.clear();
    lengths_.clear();
    images_.clear();
    for (const Job& job : jobs) {
      files_.push_back(reinterpret_cast<const unsigned char*>(job.file.data()));
      lengths_.push_back(job.file.size());
      nvjpegImage_t image{};
      image.channel[0] = job.to;
      image.pitch[0] = static_cast<std::size_t>(job.width * 3);
      images_.push_back(image);
    }
    if (batch_ != jobs.size()) {
      batch_ = 0;
      ATH_TRY(api_.begin_batch(handle_, state_, static_cast<int>(jobs.size()), kThreads, NVJPEG_OUTPUT_RGBI));
      batch_ = jobs.size();
    }
    const nvjpegStatus_t status = api_.decode(handle_, state_, files_.data(), lengths_.data(), images_.data(),
                                              static_cast<cudaStream_t>(stream.native()));
    if (status == NVJPEG_STATUS_BAD_JPEG || status == NVJPEG_STATUS_INCOMPLETE_BITSTREAM ||
        status == NVJPEG_STATUS_JPEG_NOT_SUPPORTED) {
      batch_ = 0;  // a failed batch must begin anew
      done_.record(stream);
      wait();  // files before the refused one may still be decoding
      detail::fail<IoError>("jpeg: nvJPEG cannot decode one of the {} files of a batch: {}", jobs.size(),
                            detail::StatusTraits<nvjpegStatus_t>::text(status));
    }
    ATH_TRY(status);
    done_.record(stream);
  }

 private:
  static constexpr int kThreads = 1;  // of the host, for what engines and kernels leave to it

  void wait() const {
    while (!done_.done()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  Device device_;
  const NvJpegApi& api_;
  nvjpegHandle_t handle_ = nullptr;
  nvjpegJpegState_t state_ = nullptr;
  std::size_t batch_ = 0;  // images that the state is prepared for
  Event done_;
  std::vector<const unsigned char*> files_;
  std::vector<std::size_t> lengths_;
  std::vector<nvjpegImage_t> images_;
};

}  // namespace

std::unique_ptr<DeviceJpeg> make_device_jpeg(Device device) {
  return std::make_unique<NvJpeg>(device);
}

}  // namespace athanor
