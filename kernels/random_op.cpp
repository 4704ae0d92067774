#include "kernels/random_op.h"

namespace athanor {
namespace {

thread_local SampleRange samples_now;

}  // namespace

SampleScope::SampleScope(SampleRange samples) : before_(samples_now) {
  samples_now = samples;
}
SampleScope::~SampleScope() {
  samples_now = before_;
}

SampleRange SampleScope::current() {
  return samples_now;
}

RandomOp next_random_op(ContextBase& context, const Shape& shape) {
  RandomOp op{context.next_random_op()};
  const auto [first, count] = samples_now;
  const std::int64_t rows = shape.rank() > 0 ? shape[0] : 1;
  if (count > 0 && rows % count == 0) {
    op.first = first * (shape.numel() / count);
  } else {
    op.first = first << 40;  // beyond any tensor of lower ranks
  }
  return op;
}

}  // namespace athanor
