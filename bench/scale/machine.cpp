// What a real machine and a made-up one have in common: both speak MPI.
#include "bench/scale/machine.h"

#define OMPI_SKIP_MPICXX
#include <mpi.h>

namespace athanor::scale {

double now() {
  return MPI_Wtime();
}

double max_over_ranks(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

}  // namespace athanor::scale
