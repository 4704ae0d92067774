#include "kernels/dropout.h"

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"

namespace athanor::bench {

void add_dropout() {
  const Shape shape = {64, 1024};
  for (const DType dtype : bench_dtypes()) {
    // The mask is a function of the place alone: the first tile of a large case is the small case.
    add({.op = "dropout",
         .dir = "fwd",
         .dtype = dtype,
         .shape = shape,
         .work = {.bytes = 2 * bytes_of(shape, dtype)},
         .prepare =
             [=] {
               return call({{pattern(shape, dtype)}, result(Role::first_result, shape, dtype)},
                           epsilon_of(dtype), [](auto& context, std::span<const Tensor> t) {
                             kernels::dropout(context, 0.1f, {1}, t[0], t[1]);
                           });
             },
         .tiles = tiles_for(shape, dtype)});
  }
}

}  // namespace athanor::bench
