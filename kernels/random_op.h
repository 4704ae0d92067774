#pragma once

#include "kernels/context.h"

namespace athanor {

/// The source of a random op's numbers.
struct RandomOp {
  std::int64_t number = 0;  ///< within the step: selects its stream
  std::int64_t first = 0;   ///< stream word of the tensor's first element; element i uses first + i
};

/// This rank's samples, among those of all ranks in a pass.
struct SampleRange {
  std::int64_t first = 0, count = 0;
};

/// While alive, random draws of this thread are for these samples. With several ranks, use it around each
/// forward and backward pass. Without it, they are for all samples.
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

/// The key of the context's next random op, for a tensor of this shape whose first axis holds one or several
/// rows per sample. A sample's numbers depend on its position in the global batch, not on the number of
/// ranks. If rows do not divide by samples, each rank draws different numbers.
RandomOp next_random_op(ContextBase& context, const Shape& shape);

}  // namespace athanor
