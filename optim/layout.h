#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/parameter.h"
#include "optim/precision.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

// What lies where in the flat tensors of a ParameterArena (optim/arena.h): plain data, fixed before any
// memory is allocated.

namespace athanor {

/// A range of elements in a part of an arena.
struct ArenaRange {
  int part = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
};

/// The parameters of networks part by part, one part for each compute dtype, in order of first occurrence.
/// Within a part they lie in declared order, each 128-byte aligned, bucket by bucket.
struct ArenaLayout {
  /// All elements of one compute dtype.
  struct Part {
    DType dtype = DType::f32;           ///< of weights
    DType gradient_dtype = DType::f32;  ///< differs from it where gradients are accumulated in f32
    std::int64_t size = 0;              ///< elements, padding included
  };
  /// Position of a parameter in its part, in elements.
  struct Slice {
    int part = 0;
    std::int64_t begin = 0, count = 0;
  };

  std::vector<Parameter> parameters;  ///< a tensor listed twice (tied) once, under its first name
  std::vector<NamedTensor> buffers;   ///< likewise
  std::vector<Part> parts;
  std::vector<Slice> slices;        ///< by parameter
  std::vector<ArenaRange> buckets;  ///< in the order their gradients complete: the last parameters first
  std::int64_t numel = 0;           ///< of all parameters, without padding
  int shards = 1;                   ///< ArenaOptions::shards
  bool whole_parameters = false;    ///< ArenaOptions::whole_parameters
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
  /// empty: all. Called once, before memory is allocated. Parameters still have their original storage then,
  /// and their values may be changed.
  std::function<std::vector<ArenaRange>(const ArenaLayout&)> keep = {};
};

/// Throws ArgumentError on a dtype other than f32, on a strided tensor, on tensors that overlap without being
/// equal, and on options.shards below 1.
ArenaLayout lay_out(std::vector<Parameter> parameters, std::vector<NamedTensor> buffers,
                    const ArenaOptions& options);

}  // namespace athanor
