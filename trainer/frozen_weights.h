#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "optim/precision.h"
#include "tensor/state_dict.h"

namespace athanor {

/// What the networks of a run use and do not train: parameters that ask for no gradient, and the buffers of
/// frozen modules. They have a place on the device in the run's precision, and nothing else: no gradients, no
/// optimizer state, no average, no message between ranks. What they were before stays beside them, in host
/// memory, where that is of another precision: checkpoints hold those values.
class FrozenWeights {
 public:
  /// Takes f32 tensors over; handles follow. Throws ArgumentError on another dtype.
  FrozenWeights(const std::vector<Parameter>& parameters, const std::vector<NamedTensor>& buffers,
                Precision precision, Device device);
  FrozenWeights(const FrozenWeights&) = delete;
  FrozenWeights& operator=(const FrozenWeights&) = delete;

  bool empty() const { return entries_.empty(); }
  /// Elements of all parameters.
  std::int64_t numel() const { return numel_; }
  /// Throws ArgumentError where one has been asked for its gradient since.
  void check() const;

  /// Values in f32 under the names of the model.
  StateDict state_dict() const;
  /// Copies values in. Throws ArgumentError, before anything is written, on a missing, extra or misshapen
  /// entry, naming it.
  void load_state_dict(const StateDict& state);
  /// Of all values, in their order. A counted wait.
  std::uint64_t hash() const;

  /// Gives handles the f32 values again, but those that somebody has written to since: before they go into
  /// another run, which may train them.
  void put_back() const;

 private:
  struct Entry {
    std::string name;
    Tensor handle, values;      // one memory, unless the precision or the device differs
    std::uint32_t version = 0;  // of the handle, as long as nobody else writes to it
  };
  static void write_handle(Entry& entry);

  std::vector<Entry> entries_;
  std::int64_t numel_ = 0;
};

}  // namespace athanor
