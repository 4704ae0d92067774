#include "kernels/compare.h"

#include "kernels/cpu/context.h"
#include "kernels/cpu/elementwise_map.h"

namespace athanor::kernels {
namespace {

// Calls f.operator()<predicate>(): a loop vectorises if the predicate is known at compile time.
template <class F> void dispatch_predicate(Predicate predicate, const F& f) {
  switch (predicate) {
    case Predicate::equal: return f.template operator()<Predicate::equal>();
    case Predicate::not_equal: return f.template operator()<Predicate::not_equal>();
    case Predicate::less: return f.template operator()<Predicate::less>();
    case Predicate::less_equal: return f.template operator()<Predicate::less_equal>();
    case Predicate::logical_and: return f.template operator()<Predicate::logical_and>();
    case Predicate::logical_or: return f.template operator()<Predicate::logical_or>();
    case Predicate::logical_xor: return f.template operator()<Predicate::logical_xor>();
  }
}

}  // namespace

void compare(CpuContext& context, Predicate predicate, const Tensor& a, const Tensor& b, Out y) {
  dispatch_any(a.dtype(), [&]<class T>() {
    dispatch_predicate(predicate, [&]<Predicate known>() {
      cpu::map<T, bool>(
          context, [](auto left, auto right) { return holds(known, left, right); }, y, a, b);
    });
  });
}

}  // namespace athanor::kernels
