#include "kernels/compare.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/map.h"

// Bytes over bandwidth. One kernel of each dtype for all predicates: the branch is the same for the whole
// grid.

namespace athanor::kernels {
namespace {

struct Compare {
  Predicate predicate;

  template <class A> __device__ __forceinline__ bool operator()(A a, A b) const {
    return holds(predicate, a, b);
  }
};

}  // namespace

void compare(CudaContext& context, Predicate predicate, const Tensor& a, const Tensor& b, Out y) {
  const Compare f{predicate};
  dispatch_any(a.dtype(), [&]<class T>() { cuda::map<T, bool>(context, "compare", f, f, y, a, b); });
}

}  // namespace athanor::kernels
