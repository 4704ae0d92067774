#pragma once  // Explained in docs/autograd.md.

#include <cstdint>
#include <span>
#include <vector>

#include "optim/buffers.h"
#include "optim/layout.h"
#include "optim/shards.h"
#include "tensor/state_dict.h"
#include "tensor/tensor.h"

// The memory of a model in training. Parameters are stable handles; the arena moves their storage into a few
// flat tensors. So one launch updates everything, a bucket of gradients is a slice, and backward passes write
// gradients where the update reads them. Each compute dtype has one *part*:
//
//     weights     | conv1.weight ..| conv1.bias ..| fc.weight ......|   what forward and backward read
//     gradients   |                |              |                 |   bound to the leaves
//     masters     |                |              |                 |   f32; the weights themselves where
//                                                                       the compute dtype is f32
//
// in declared order, each slice 128-byte aligned, gaps zero. All three use the same element offsets, unless
// the arena is sharded.

namespace athanor {

/// The parameters of networks in a few flat tensors: compute weights, f32 masters and gradients, part by
/// part.
class ParameterArena {
 public:
  /// The flat tensors of one compute dtype.
  struct Part : ArenaLayout::Part {
    Tensor weights, gradients;  ///< of `size` elements
    Tensor masters;             ///< of Shards::size() elements if separate from the weights
  };

  /// Takes over the storage of f32 parameters and buffers and casts the weights to the compute dtype, except
  /// parameters with keep_f32. Values and handles stay valid. A tensor listed twice (tied) is taken once,
  /// under its first name. Throws what lay_out() and Shards throw.
  ParameterArena(std::vector<Parameter> parameters, std::vector<NamedTensor> buffers,
                 const ArenaOptions& options = {});
  ParameterArena(const ParameterArena&) = delete;
  ParameterArena& operator=(const ParameterArena&) = delete;

  const ArenaLayout& layout() const { return layout_; }
  /// What of it this rank owns. If sharded, writing masters changes only this rank's weights and counts as an
  /// update; Zero1::gather_weights() sends them to all ranks.
  const Shards& shards() const { return shards_; }
  std::span<const Part> parts() const { return parts_; }
  const FlatBuffers& buffers() const { return buffers_; }
  FlatBuffers& buffers() { return buffers_; }
  Device device() const { return device_; }

  std::span<const Parameter> parameters() const { return layout_.parameters; }
  int size() const { return static_cast<int>(layout_.parameters.size()); }
  /// Number of elements of all parameters, without padding.
  std::int64_t numel() const { return layout_.numel; }
  const ArenaLayout::Slice& slice(int parameter) const {
    return layout_.slices[static_cast<std::size_t>(parameter)];
  }
  /// Views shaped like the parameter. master() throws ArgumentError if sharded.
  Tensor gradient(int parameter) const { return view(&Part::gradients, parameter); }
  Tensor master(int parameter) const;

  /// Binds leaves created since the last call (a layer unfrozen), and marks every gradient as missing. Writes
  /// no memory.
  void zero_grad();
  /// How often zero_grad() was called: identifies the step of a gradient.
  std::int64_t zeroed() const { return zeroed_; }
  /// Whether a backward pass has added a gradient since zero_grad(). Updates skip parameters without one.
  bool has_gradient(int parameter) const;

  /// Casts masters to weights; call it after writing to the masters.
  void weights_from_masters();
  /// Marks weights as written: their saved tensors and packed copies become stale.
  void bump_weights() const;
  /// Must be called after each update of this rank's masters; updates() counts the calls.
  void updated() { ++updates_, bump_weights(); }
  std::int64_t updates() const { return updates_; }

  /// Masters and buffers, all f32, under the names of the model: views of live memory, not copies. If
  /// sharded, masters are sharded tensors.
  StateDict state_dict() const;
  /// Copies values in and refreshes the compute copies. Throws ArgumentError, before writing anything, naming
  /// a missing, extra or misshapen entry.
  void load_state_dict(const StateDict& state);

  /// Hash of the master weights: mix64(count + sum over i of hash_element(i, bits of value i)) modulo 2^64,
  /// where i counts the elements of all parameters in declared order (kernels/hash.h). It does not depend on
  /// padding, compute dtype, buckets or the order of summation. It tells -0 from 0, and NaNs apart.
  /// Waits for the device. Throws ArgumentError if sharded: GradientSync::weights_hash() covers all ranks.
  std::uint64_t weights_hash() const;
  /// The hash over all ranks is hash_of(the sum of their owned_hash()).
  std::uint64_t owned_hash() const;
  std::uint64_t hash_of(std::uint64_t sum) const;

 private:
  void take_over_weights();
  Tensor view(Tensor Part::*flat, int parameter) const;

  ArenaLayout layout_;
  Device device_;
  Shards shards_;
  std::vector<Part> parts_;
  FlatBuffers buffers_;
  std::int64_t zeroed_ = 0, updates_ = 0;
};

}  // namespace athanor
