#include "data/device_jpeg.h"
#include "tensor/base/error.h"

namespace athanor {

std::unique_ptr<DeviceJpeg> make_device_jpeg(Device) {
  detail::fail<>(
      "--decode gpu: this build cannot decode JPEG files on a GPU, because nvjpeg.h was not found when it "
      "was "
      "configured; install libnvjpeg-dev, or set NVJPEG_ROOT to the folder nvidia/cu13 of the wheel "
      "nvidia-nvjpeg; or use --decode cpu");
}

}  // namespace athanor
