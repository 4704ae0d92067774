#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "autograd/parameter.h"
#include "optim/precision.h"
#include "optim/step_buffer.h"
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
// in declared order, each slice 128-byte aligned, gaps zero. All three use the same element offsets.

namespace athanor {

class ParameterArena;

/// A range of elements in a part of an arena.
struct ArenaRange {
  int part = 0;
  std::int64_t begin = 0, end = 0;
};

struct ArenaOptions {
  Precision precision = Precision::f32;
  Device device = kCpu;
  /// Keeps gradients in f32 if the compute dtype is a half type: for accumulation over micro-batches.
  bool f32_gradients = false;
  /// Gradient buckets are filled from the last parameter backwards. Each holds at most this many bytes, or
  /// one larger parameter; 0: one bucket.
  std::size_t bucket_bytes = 0;
  /// The same for the first bucket to complete in each part; 0: as the others.
  std::size_t first_bucket_bytes = 0;
  /// Aligns the end of each bucket so that it splits into `shards` equal, aligned pieces.
  int shards = 1;
  /// Ranks own whole parameters, not pieces: for optimizers that need whole matrices (dist/bucket_layout.h).
  bool whole_parameters = false;
  /// ZeRO-1 (dist/zero1.h): returns the disjoint ranges whose masters and optimizer state this rank keeps;
  /// empty: all. Called once, after the layout is fixed and before memory is allocated. Parameters still have
  /// their original storage then, and their values may be changed.
  std::function<std::vector<ArenaRange>(const ParameterArena&)> keep = {};
};

/// The parameters of networks in a few flat tensors: compute weights, f32 masters, gradients and optimizer
/// state, part by part.
class ParameterArena {
 public:
  /// Position of a parameter in its part's flat tensors, in elements.
  struct Slice {
    int part = 0;
    std::int64_t begin = 0;
    std::int64_t count = 0;
  };
  /// The flat tensors of one compute dtype, all of `size` elements.
  struct Part {
    DType dtype = DType::f32;
    std::int64_t size = 0;
    Tensor weights, gradients, masters;
  };
  /// A range of a part whose gradients complete at about the same time.
  struct Bucket {
    int part = 0;
    std::int64_t begin = 0, end = 0;
  };

  /// A range of a part whose masters this rank keeps.
  struct Owned : ArenaRange {
    std::int64_t masters = 0;  ///< its offset in the part's masters
    std::int64_t kept = 0;     ///< its offset in a tensor of kept(part) elements
    std::int64_t count() const { return end - begin; }
  };
  /// A range of one parameter whose masters this rank keeps.
  struct Run {
    std::int64_t begin = 0;  ///< relative to the parameter's first element
    std::int64_t count = 0;
    std::int64_t masters = 0, kept = 0;  ///< as in Owned
  };

  /// Takes over the storage of f32 parameters and buffers and casts the weights to the compute dtype, except
  /// parameters with keep_f32. Values and handles stay valid. A tensor listed twice (tied) is taken once,
  /// under its first name. Throws ArgumentError on a dtype other than f32, on tensors that overlap without
  /// being equal, and on an option out of range.
  ParameterArena(std::vector<Parameter> parameters, std::vector<NamedTensor> buffers,
                 const ArenaOptions& options = {});
  ParameterArena(std::vector<Parameter> parameters, std::vector<NamedTensor> buffers, Precision precision,
                 Device device);
  ParameterArena(const ParameterArena&) = delete;
  ParameterArena& operator=(const ParameterArena&) = delete;

  std::span<const Parameter> parameters() const { return parameters_; }
  std::span<const NamedTensor> buffers() const { return buffers_; }
  std::span<const Part> parts() const { return parts_; }
  /// In the order their gradients complete: the last parameters first.
  std::span<const Bucket> buckets() const { return buckets_; }
  Device device() const { return options_.device; }
  const ArenaOptions& options() const { return options_; }
  int size() const { return static_cast<int>(parameters_.size()); }
  /// Number of elements of all parameters, without padding.
  std::int64_t numel() const { return numel_; }

  /// Whether this rank keeps only a part of the masters (ArenaOptions::keep). Masters that are not the
  /// weights themselves then have separate tensors. Functions that need all masters throw ArgumentError.
  /// Writing masters changes only this rank's weights and counts as an update; Zero1::gather_weights() sends
  /// them to all ranks.
  bool sharded() const { return sharded_; }
  /// The ranges this rank keeps, ordered by part and element: everything unless sharded.
  std::span<const Owned> owned() const { return owned_; }
  /// Number of elements of a part that this rank keeps.
  std::int64_t kept(int part) const { return kept_[static_cast<std::size_t>(part)]; }
  /// Calls f(run) for every run of a parameter's elements whose masters this rank keeps, ascending.
  template <class F> void for_each_owned(int parameter, const F& f) const;
  /// Number of elements of a parameter whose masters this rank keeps.
  std::int64_t owned_elements(int parameter) const;
  /// A parameter's elements of an f32 tensor: a view of its shape or, if sharded, this rank's runs. `at`
  /// returns the offset of a run in `flat`.
  template <class At> StateDict::Value state_of(int parameter, const Tensor& flat, const At& at) const;
  /// Throws ArgumentError naming `op` if sharded().
  void check_whole(const char* op) const;
  /// The dtype of a part's gradients.
  DType gradient_dtype(int part) const {
    return options_.f32_gradients ? DType::f32 : parts_[static_cast<std::size_t>(part)].dtype;
  }

  const Slice& slice(int parameter) const { return slices_[static_cast<std::size_t>(parameter)]; }
  /// Views shaped like the parameter.
  Tensor gradient(int parameter) const { return view(&Part::gradients, parameter); }
  Tensor master(int parameter) const {
    check_whole("master");
    return view(&Part::masters, parameter);
  }

  /// Binds leaves created since the last call (a layer unfrozen), and marks every gradient as missing. Writes
  /// no memory.
  void zero_grad();
  /// How often zero_grad() was called: identifies the step of a gradient.
  std::int64_t zeroed() const { return zeroed_; }
  /// Whether a backward pass has added a gradient since zero_grad(). Updates skip parameters without one.
  bool has_gradient(int parameter) const;

  /// Casts masters to weights; call it after writing to the masters.
  void weights_from_masters();

  /// Saves the current values of the buffers.
  void snapshot_buffers();
  /// Restores the last snapshot.
  void restore_buffers();
  /// Restores it if the step found a non-finite gradient; the device decides.
  void restore_buffers_if_skipped(StepBuffer& step);
  /// All buffers, flat f32; undefined if there are none.
  const Tensor& flat_buffers() const { return flat_buffers_; }

  /// Marks weights (or buffers) as written: their saved tensors and packed copies become stale.
  void bump_weights() const;
  /// Must be called after each update of this rank's masters; updates() counts the calls.
  void updated() { ++updates_, bump_weights(); }
  std::int64_t updates() const { return updates_; }
  void bump_buffers() const;

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
  void make_parts();
  std::vector<bool> bucket_begins(int part) const;
  void lay_out();
  void choose_owned();
  void take_over_weights();
  void take_over_buffers();
  Tensor view(Tensor Part::*flat, int parameter) const;
  Run whole_run(int parameter) const {
    const Slice& at = slice(parameter);
    return {0, at.count, at.begin, at.begin};
  }

  ArenaOptions options_;
  std::vector<Parameter> parameters_;
  std::vector<NamedTensor> buffers_;
  std::vector<Slice> slices_;
  std::vector<Part> parts_;
  std::vector<Bucket> buckets_;
  bool sharded_ = false;
  std::vector<Owned> owned_;
  std::vector<std::int64_t> kept_;  // number of elements, by part
  std::int64_t numel_ = 0, zeroed_ = 0, updates_ = 0;
  Tensor flat_buffers_, snapshot_;
};

template <class F> void ParameterArena::for_each_owned(int parameter, const F& f) const {
  const Slice& at = slice(parameter);
  for (const Owned& range : owned_) {
    if (range.part != at.part) continue;
    const std::int64_t begin = std::max(range.begin, at.begin);
    const std::int64_t end = std::min(range.end, at.begin + at.count);
    const std::int64_t into = begin - range.begin;
    if (begin < end) f(Run{begin - at.begin, end - begin, range.masters + into, range.kept + into});
  }
}

template <class At>
StateDict::Value ParameterArena::state_of(int parameter, const Tensor& flat, const At& at) const {
  const Shape& shape = parameters_[static_cast<std::size_t>(parameter)].tensor.shape();
  const auto run_of = [&](const Run& run, const Shape& as) {
    return Tensor::wrap(flat.storage(), flat.offset() + at(run), as, contiguous_strides(as), flat.dtype());
  };
  if (!sharded_) return run_of(whole_run(parameter), shape);
  ShardedTensor part{shape, flat.dtype(), {}};
  for_each_owned(parameter, [&](const Run& run) {
    part.runs.push_back({run.begin, run_of(run, {run.count})});
  });
  return part;
}

}  // namespace athanor
