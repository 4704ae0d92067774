#include "kernels/reduce.h"

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"

namespace athanor::bench {
namespace {

struct Reduction {
  const char* op;
  Shape x, y;
  Role role;
};
const Reduction kReductions[] = {
    {"sum_all", {64, 1024}, {1, 1}, Role::sum_result},
    {"sum_rows", {64, 1024}, {1, 1024}, Role::sum_result},
    {"sum_rows", {1024, 64}, {1, 64}, Role::sum_result},
    {"sum_columns", {64, 1024}, {64, 1}, Role::row_result},
    {"sum_columns", {1024, 64}, {1024, 1}, Role::row_result},
};

}  // namespace

void add_reduce() {
  for (const DType dtype : bench_dtypes()) {
    for (const Reduction& r : kReductions) {
      add({.op = r.op,
           .dir = "fwd",
           .dtype = dtype,
           .shape = r.x,
           .work = {.bytes = bytes_of(r.x, dtype)},
           .prepare =
               [=] {
                 return call(
                     {{pattern(r.x, dtype, 0, 1)}, result(r.role, r.y, DType::f32)}, 1e-5,
                     [](auto& context, std::span<const Tensor> t) { kernels::sum(context, t[0], t[1]); });
               },
           .tiles = tiles_for(r.x, dtype)});
    }
  }
}

}  // namespace athanor::bench
