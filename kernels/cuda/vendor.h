#pragma once

#include "tensor/device.h"

namespace athanor::cuda {

/// Handles, plans and workspace of cuBLASLt and cuDNN on one device.
class Vendor {
 public:
  explicit Vendor(Device) {}
};

}  // namespace athanor::cuda
