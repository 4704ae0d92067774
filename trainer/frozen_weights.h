#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/packed_model.h"
#include "autograd/parameter.h"
#include "optim/arena.h"
#include "optim/precision.h"
#include "tensor/state_dict.h"

namespace athanor {

/// The networks' untrained state, parameters and buffers: on the device in the run's precision, without
/// gradients, optimizer state, averages or messages between ranks. If the precision is a half one, the
/// original values stay in host memory for checkpoints.
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
  /// Throws ArgumentError, before writing anything, naming a missing, extra or misshapen entry.
  void load_state_dict(const StateDict& state);
  /// Hash of all values, in order. A counted wait.
  std::uint64_t hash() const;

  /// Gives `packed` the f32 values of all weights that are rounded: PackedModel::keep_unrounded().
  void keep_unrounded(PackedModel& packed) const;

  /// Restores the f32 values in handles not written since, for another run, which may train them.
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

/// The memory of a task's networks. It outlives the run, as the networks belong to the caller.
struct ModelMemory {
  std::vector<std::unique_ptr<ParameterArena>> arenas;  ///< one for each optimizer
  std::unique_ptr<FrozenWeights> frozen;
};

}  // namespace athanor
