#include <cstdio>
#include <cstdlib>
#include <map>

#include <mpi.h>
#include <simgrid/host.h>

#include "bench/scale/machine.h"

namespace athanor::scale {

bool simulated() {
  return true;
}

void compute(double seconds) {
  if (seconds > 0) smpi_execute_flops(seconds * sg_host_get_speed(sg_host_self()));
}

// SMPI keeps one piece of memory per file and line that asks (smpirun --cfg=smpi/shared-malloc:local). It is
// never given back: the program ends with it. A rank that asks again gets what it has: pages of a thousand
// ranks take a while to be touched for the first time, all the same ones though they be.
Tensor shared_by_ranks(std::int64_t count, int use) {
  struct TheProgram final : RefCounted {};
  static std::map<int, Tensor> of_this_rank;
  Tensor& tensor = of_this_rank[use];
  if (!tensor.defined()) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    void* memory = smpi_shared_malloc(bytes, "shared_by_ranks", use);
    tensor =
        Tensor::wrap(make_ref<Storage>(memory, bytes, make_ref<TheProgram>()), 0, {count}, {1}, DType::f32);
  }
  return tensor;
}

void fail(const char* program, int rank, const char* what) {
  std::fprintf(stderr, "%s: rank %d: %s\n", program, rank, what);
  // One process is all ranks: MPI_Abort would unwind them one after the other, each with an error of its own.
  std::_Exit(1);
}

}  // namespace athanor::scale
