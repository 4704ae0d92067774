// Three ranks, of which rank 1 falls silent: the others say which is missing, and end the job in spite of it.
// Rank 2 gives up a little later than rank 0, and still has the time to say so.
// Run by mpirun, which must return long before rank 1 does, with exit code 74.
//
//     lost_rank_mpi_test          the error is caught, and main returns: MPI_Finalize would wait for rank 1
//     lost_rank_mpi_test unwind   an exception leaves the scope of the transport
#include <chrono>
#include <cstdio>
#include <thread>

#include "dist/collectives/communicator.h"
#include "dist/transports/mpi_transport.h"
#include "tensor/base/error.h"

namespace {

using namespace athanor;

void run(bool unwind) {
  dist::MpiTransport transport;
  const std::chrono::milliseconds timeout(transport.rank() == 2 ? 1400 : 1000);
  dist::Communicator patient(transport), comm(transport, {.timeout = timeout});
  patient.run(*patient.barrier());
  if (transport.rank() == 1) return std::this_thread::sleep_for(std::chrono::hours(1));
  ATH_CHECK(!unwind, "test: fails");
  try {
    comm.run(*comm.all_reduce(Tensor::zeros({64})), 5);
  } catch (const PeerLostError& error) {
    std::fprintf(stderr, "caught: %s\n", error.what());
  }
}

}  // namespace

int main(int argc, char**) {
  try {
    run(argc > 1);
  } catch (const std::exception&) {
    std::fprintf(stderr, "not reached\n");
    return 1;
  }
}
