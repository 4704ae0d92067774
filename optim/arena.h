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
// flat tensors, so that one launch updates everything, a bucket of gradients is a slice, and gradients are
// written where the update reads them. Per compute dtype there is one *part*:
//
//     weights     | conv1.weight ..| conv1.bias ..| fc.weight ......|   what forward and backward read
//     gradients   |                |              |                 |   bound to the leaves
//     masters     |                |              |                 |   f32; the weights themselves where
//                                                                       the compute dtype is f32
//
// in declared order, each slice 128-byte aligned, the gaps zero. All three use the same element offsets.

namespace athanor {

class ParameterArena;

/// Elements of a part of an arena.
struct ArenaRange {
  int part = 0;
  std::int64_t begin = 0, end = 0;
};

struct ArenaOptions {
  Precision precision = Precision::f32;
  Device device = kCpu;
  /// Gradients are f32 although the compute dtype is a half type: for accumulation over micro-batches.
  bool f32_gradients = false;
  /// Gradient buckets are filled from the last parameter backwards and hold at most this much, or one
  /// parameter that is larger; 0: one bucket.
  std::size_t bucket_bytes = 0;
  /// The same for the bucket that is complete first, of each part; 0: as the others.
  std::size_t first_bucket_bytes = 0;
  /// Every bucket ends where `shards` equal, aligned pieces of it end.
  int shards = 1;
  /// Ranks own whole parameters, not pieces: for optimizers that need whole matrices (dist/bucket_layout.h).
  bool whole_parameters = false;
  /// ZeRO-1 (dist/zero1.h): which ranges, apart from each other, this rank keeps masters of, and what
  /// optimizers hold; none given: all. Asked once, when everything has its place and before memory is taken:
  /// parameters then have the storage they came with, and may be given other values.
  std::function<std::vector<ArenaRange>(const ParameterArena&)> keep = {};
};

class ParameterArena {
 public:
  /// Where a parameter lies: elements of its part's flat tensors.
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
  /// A range of a part whose gradients are complete at about the same time.
  struct Bucket {
    int part = 0;
    std::int64_t begin = 0, end = 0;
  };

  /// A range of a part whose masters this rank keeps.
  struct Owned : ArenaRange {
    std::int64_t masters = 0;  ///< where it begins in the part's masters
    std::int64_t kept = 0;     ///< where it begins in a tensor of kept(part) elements
    std::int64_t count() const { return end - begin; }
  };
  /// Elements of one parameter whose masters this rank keeps.
  struct Run {
    std::int64_t begin = 0;  ///< counted from the parameter's first element
    std::int64_t count = 0;
    std::int64_t masters = 0, kept = 0;  ///< as in Owned
  };

  /// Takes over the storage of f32 parameters and buffers and casts the weights to the compute dtype, except
  /// for parameters with keep_f32. Values stay; handles follow. A tensor listed twice (tied) is taken once,
  /// under its first name. Throws ArgumentError on a dtype other than f32, on tensors that overlap without
  /// being the same, and on an option out of range.
  ParameterArena(std::vector<Parameter> parameters, std::vector<NamedTensor> buffers,
                 const ArenaOptions& options = {});
  ParameterArena(std::vector<Parameter> parameters, std::vector<NamedTensor> buffers, Precision precision,
                 Device device);
  ParameterArena(const ParameterArena&) = delete;
  ParameterArena& operator=(const ParameterArena&) = delete;

  std::span<const Parameter> parameters() const { return parameters_; }
  std::span<const NamedTensor> buffers() const { return buffers_; }
  std::span<const Part> parts() const { return parts_; }
  /// In the order their gradients arrive: the last parameters first.
  std::span<const Bucket> buckets() const { return buckets_; }
  Device device() const { return options_.device; }
  const ArenaOptions& options() const { return options_; }
  int size() const { return static_cast<int>(parameters_.size()); }
  /// Elements of all parameters, padding not counted.
  std::int64_t numel() const { return numel_; }

  /// Whether this rank keeps some of the masters, as ArenaOptions::keep said. Those that are no weights
  /// themselves then lie in tensors that hold no others. What takes all masters throws ArgumentError. What
  /// writes to masters changes the weights of this rank's alone, and counts as an update: all ranks have
  /// them after Zero1::gather_weights().
  bool sharded() const { return sharded_; }
  /// What this rank keeps, in the order of parts and elements: all, unless sharded.
  std::span<const Owned> owned() const { return owned_; }
  /// Elements of a part that this rank keeps.
  std::int64_t kept(int part) const { return kept_[static_cast<std::size_t>(part)]; }
  /// Calls f(run) for every run of a parameter's elements whose masters are here, ascending.
  template <class F> void for_each_owned(int parameter, const F& f) const;
  /// Elements of a parameter whose masters are here.
  std::int64_t owned_elements(int parameter) const;
  /// A parameter's elements of an f32 tensor: a view shaped like it, or, where sharded, this rank's runs.
  /// `at` says where a run begins in `flat`.
  template <class At> StateDict::Value state_of(int parameter, const Tensor& flat, const At& at) const;
  /// Throws ArgumentError where sharded(), naming who asks.
  void check_whole(const char* op) const;
  /// Of a part's gradients.
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

  /// Binds leaves that came into being since (a layer unfrozen), and marks every gradient as not there yet.
  /// Writes no memory.
  void zero_grad();
  /// How often zero_grad() was called: which step a gradient is of.
  std::int64_t zeroed() const { return zeroed_; }
  /// Whether a backward pass delivered a gradient since zero_grad(). One that did not is skipped by updates.
  bool has_gradient(int parameter) const;

  /// Casts masters to weights: after something wrote to the masters.
  void weights_from_masters();

  /// Keeps the buffers' present values.
  void snapshot_buffers();
  /// Puts the values of the last snapshot back.
  void restore_buffers();
  /// The same where the step found a non-finite gradient, decided on the device.
  void restore_buffers_if_skipped(StepBuffer& step);
  /// All buffers, flat f32; undefined where there are none.
  const Tensor& flat_buffers() const { return flat_buffers_; }

  /// Marks weights (or buffers) as written: saved tensors and packed copies of them become stale.
  void bump_weights() const;
  /// Called by who has moved the masters that are here; and how often somebody has.
  void updated() { ++updates_, bump_weights(); }
  std::int64_t updates() const { return updates_; }
  void bump_buffers() const;

  /// Masters and buffers, all f32, under the names of the model: views of live memory, not copies. Where
  /// sharded, masters are sharded tensors.
  StateDict state_dict() const;
  /// Copies values in and refreshes the compute copies. Throws ArgumentError, before anything is written, on
  /// a missing, extra or misshapen entry, naming it.
  void load_state_dict(const StateDict& state);

  /// Hash of the master weights: mix64(count + sum over i of hash_element(i, bits of value i)) modulo 2^64,
  /// where i counts the elements of all parameters in declared order (kernels/hash.h). Padding, compute
  /// dtype, buckets and the order of summation do not enter. -0 and 0 differ, and so do NaNs.
  /// Waits for the device. Throws ArgumentError where sharded: GradientSync::weights_hash() asks all ranks.
  std::uint64_t weights_hash() const;
  /// That of all ranks is hash_of() the sum of their owned_hash().
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
  std::vector<std::int64_t> kept_;  // elements, by part
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
