#include "kernels/reduce.h"

#include <cmath>

namespace athanor::kernels {

template <> std::int64_t count_nonfinite(CpuContext&, const Tensor& x) {
  count_host_sync("count_nonfinite", Site::current());
  return dispatch_floating(x.dtype(), "count_nonfinite", [&]<class T>() {
    const T* values = x.data<T>();
    std::int64_t bad = 0;
    for (std::int64_t i = 0; i < x.numel(); ++i) bad += !std::isfinite(Accumulate<T>(values[i]));
    return bad;
  });
}

}  // namespace athanor::kernels
