#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "optim/precision.h"
#include "tensor/state_dict.h"

namespace athanor {

/// The networks' untrained state: parameters that need no gradient, and buffers of frozen modules. It is on
/// the device in the run's precision, without gradients, optimizer state, averages or messages between ranks.
/// If the precision differs, the original values stay in host memory for checkpoints.
class FrozenWeights {
 public:
  /// Takes over f32 tensors; handles follow. Throws ArgumentError on another dtype.
  FrozenWeights(const std::vector<Parameter>& parameters, const std::vector<NamedTensor>& buffers,
                Precision precision, Device device);
  FrozenWeights(const FrozenWeights&) = delete;
  FrozenWeights& operator=(const FrozenWeights&) = delete;

  bool empty() const { return entries_.empty(); }
  /// Number of elements of all parameters.
  std::int64_t numel() const { return numel_; }
  /// Throws ArgumentError if any now requires a gradient.
  void check() const;

  /// Values in f32 under the names of the model.
  StateDict state_dict() const;
  /// Copies values in. Throws ArgumentError, before writing anything, naming a missing, extra or misshapen
  /// entry.
  void load_state_dict(const StateDict& state);
  /// Hash of all values, in order. A counted wait.
  std::uint64_t hash() const;

  /// Restores the f32 values in the handles, except handles written since. Call it before another run, which
  /// may train them.
  void put_back() const;

 private:
  struct Entry {
    std::string name;
    Tensor handle, values;      // the same memory unless precision or device differs
    std::uint32_t version = 0;  // of the handle, to detect foreign writes
  };
  static void write_handle(Entry& entry);

  std::vector<Entry> entries_;
  std::int64_t numel_ = 0;
};

}  // namespace athanor
