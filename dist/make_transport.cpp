#include "dist/make_transport.h"

#include "dist/mpi_transport.h"
#include "dist/staged_transport.h"
#include "tensor/error.h"

namespace athanor::dist {
namespace {

Job join(const Place& place, Device device) {
  if (place.launcher != Launcher::mpirun && place.launcher != Launcher::slurm) {
    detail::fail<BackendError>(
        "ranks: in this build they talk through MPI, which {} has not started; use --devices {}, mpirun, or "
        "srun --mpi=pmix",
        name_of(place.launcher), place.world_size);
  }
  auto transport = std::make_unique<MpiTransport>();
  if (transport->world_size() != place.world_size || transport->rank() != place.rank) {
    detail::fail<BackendError>(
        "ranks: MPI must see what {} says, rank {} of {}, but sees rank {} of {}; is it another MPI than "
        "Open MPI, or srun without --mpi=pmix?",
        name_of(place.launcher), place.rank, place.world_size, transport->rank(), transport->world_size());
  }
  Job job{.place = place, .abort = [mpi = transport.get()](int exit_code) { mpi->abort(exit_code); }};
  job.place.local_rank = transport->local_rank();
  job.place.local_size = transport->local_size();
  if (device.is_cuda()) {
    job.transport = std::make_unique<StagedTransport>(*transport, device);
    job.below = std::move(transport);
  } else {
    job.transport = std::move(transport);
  }
  return job;
}

}  // namespace

Networks networks() {
  return {.mpi = true, .join = join};
}

}  // namespace athanor::dist
