#include "bench/scale/machine.h"

namespace athanor::scale {

bool simulated() {
  return false;
}

void compute(double seconds) {
  for (const double end = now() + seconds; now() < end;) {
  }
}

Tensor shared_by_ranks(std::int64_t count, int) {
  return Tensor::zeros({count});
}

}  // namespace athanor::scale
