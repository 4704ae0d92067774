#pragma once

#include "kernels/context.h"

namespace athanor {

/// Where a random op's numbers come from.
struct RandomOp {
  std::int64_t number = 0;  ///< of the step: names its stream
  std::int64_t first = 0;   ///< word of the stream for the tensor's first element; element i takes first + i
};

/// Samples of one rank, among those that all ranks have in a pass.
struct SampleRange {
  std::int64_t first = 0, count = 0;
};

/// While alive, what this thread draws at random is for these samples: on several ranks, around the forward
/// and backward pass of each. Without, it is for all there are.
class SampleScope {
 public:
  explicit SampleScope(SampleRange samples);
  ~SampleScope();
  SampleScope(const SampleScope&) = delete;
  SampleScope& operator=(const SampleScope&) = delete;

  static SampleRange current();

 private:
  SampleRange before_;
};

/// The place of the context's next random op, for a tensor of this shape whose first axis is that of samples,
/// a row for each or several: a sample's numbers depend on its place among those of all ranks, not on how
/// many ranks there are. Where rows do not divide so, a rank draws numbers that no other one does.
RandomOp next_random_op(ContextBase& context, const Shape& shape);

}  // namespace athanor
