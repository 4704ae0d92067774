#pragma once

#include <string>

#include "tensor/device.h"

namespace athanor {

struct DeviceChoice {
  Device device;
  std::string note;  ///< for the user: which GPU it is, or why it is none
};

/// What `--device text` means on this machine: auto (a GPU where there is one, else the CPU), cpu, cuda,
/// cuda:N or gpu. Throws ArgumentError on anything else and on a device this build cannot have, BackendError
/// where a GPU is asked for and none is visible.
DeviceChoice choose_device(const std::string& text);

}  // namespace athanor
