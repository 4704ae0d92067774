#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "optim/layout.h"
#include "tensor/state_dict.h"

namespace athanor {

/// ZeRO-1: the elements of an arena whose masters and optimizer state this rank owns; all of them, unless the
/// arena is sharded.
class Shards {
 public:
  /// An owned range of a part.
  struct Owned : ArenaRange {
    std::int64_t masters = 0;  ///< its offset in the part's masters
    std::int64_t local = 0;    ///< its offset in a tensor of size(part) elements
  };
  /// An owned range of one parameter.
  struct Run {
    std::int64_t begin = 0;  ///< relative to the parameter's first element
    std::int64_t count = 0;
    std::int64_t masters = 0, local = 0;  ///< as in Owned
  };

  /// Of a layout that outlives this object. Calls options.keep, if any. Throws ArgumentError on ranges that
  /// overlap or lie outside the layout.
  Shards(const ArenaLayout& layout, const ArenaOptions& options);

  /// Whether this rank owns only a part (ArenaOptions::keep). Masters that are not the weights themselves
  /// then have only its elements.
  bool sharded() const { return sharded_; }
  /// Ordered by part and element.
  std::span<const Owned> owned() const { return owned_; }
  /// Number of owned elements of a part.
  std::int64_t size(int part) const { return sizes_[static_cast<std::size_t>(part)]; }
  /// Number of owned elements of a parameter.
  std::int64_t elements(int parameter) const;
  /// Calls f(run) for every owned run of a parameter's elements, ascending.
  template <class F> void for_each_run(int parameter, const F& f) const;
  /// A parameter's elements of an f32 tensor: a view of its shape or, if sharded, the owned runs. `at`
  /// returns the offset of a run in `flat`.
  template <class At> StateDict::Value state_of(int parameter, const Tensor& flat, const At& at) const;

 private:
  const ArenaLayout& layout_;
  bool sharded_ = false;
  std::vector<Owned> owned_;
  std::vector<std::int64_t> sizes_;  // by part
};

template <class F> void Shards::for_each_run(int parameter, const F& f) const {
  const ArenaLayout::Slice& at = layout_.slices[static_cast<std::size_t>(parameter)];
  for (const Owned& range : owned_) {
    if (range.part != at.part) continue;
    const std::int64_t begin = std::max(range.begin, at.begin);
    const std::int64_t end = std::min(range.end, at.begin + at.count);
    const std::int64_t into = begin - range.begin;
    if (begin < end) f(Run{begin - at.begin, end - begin, range.masters + into, range.local + into});
  }
}

template <class At> StateDict::Value Shards::state_of(int parameter, const Tensor& flat, const At& at) const {
  const auto index = static_cast<std::size_t>(parameter);
  const Shape& shape = layout_.parameters[index].tensor.shape();
  const auto run_of = [&](const Run& run, const Shape& as) {
    return Tensor::wrap(flat.storage(), flat.offset() + at(run), as, contiguous_strides(as), flat.dtype());
  };
  if (!sharded_) {
    const ArenaLayout::Slice& slice = layout_.slices[index];
    return run_of({0, slice.count, slice.begin, slice.begin}, shape);
  }
  ShardedTensor part{shape, flat.dtype(), {}};
  for_each_run(parameter, [&](const Run& run) {
    part.runs.push_back({run.begin, run_of(run, {run.count})});
  });
  return part;
}

}  // namespace athanor
