#pragma once

#include <span>
#include <vector>

#include "autograd/parameter.h"
#include "optim/step_buffer.h"
#include "tensor/tensor.h"

namespace athanor {

/// The buffers of networks (running statistics) in one flat f32 tensor, and a snapshot that undoes what a
/// skipped step has written to them.
class FlatBuffers {
 public:
  FlatBuffers() = default;
  /// Takes over the storage of f32 tensors: values and handles stay valid.
  FlatBuffers(std::span<const NamedTensor> buffers, Device device);

  /// Undefined if there are none.
  const Tensor& flat() const { return flat_; }
  /// Marks them as written: tensors saved for a backward pass become stale.
  void bump() const;

  /// Saves the current values.
  void snapshot();
  /// Restores the last snapshot. Throws ArgumentError if there is none.
  void restore();
  /// Restores it if the step is skipped; the device decides.
  void restore_if_skipped(StepBuffer& step);

 private:
  std::vector<Tensor> handles_;
  Tensor flat_, snapshot_;
};

}  // namespace athanor
