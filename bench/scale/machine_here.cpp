#include <cstdio>
#include <cstdlib>

#include "bench/scale/machine.h"

#define OMPI_SKIP_MPICXX
#include <mpi.h>

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

void fail(const char* program, int rank, const char* what) {
  std::fprintf(stderr, "%s: rank %d: %s\n", program, rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

}  // namespace athanor::scale
