#include "dist/make_transport.h"

#include "dist/mpi_transport.h"
#include "tensor/error.h"

namespace athanor::dist {
namespace {

Job join(const Place& place, Device device) {
  if (device.is_cuda()) {
    detail::fail<BackendError>(
        "ranks: {} has started {} of them with tensors on {}, but this build has no network between GPUs; "
        "use "
        "--device cpu, or one GPU",
        name_of(place.launcher), place.world_size, device.str());
  }
  if (place.launcher != Launcher::mpirun && place.launcher != Launcher::slurm) {
    detail::fail<BackendError>(
        "ranks: on the CPU they talk through MPI, which {} has not started; use --devices {}, mpirun, or "
        "srun "
        "--mpi=pmix",
        name_of(place.launcher), place.world_size);
  }
  auto transport = std::make_unique<MpiTransport>();
  if (transport->world_size() != place.world_size || transport->rank() != place.rank) {
    detail::fail<BackendError>(
        "ranks: MPI must see what {} says, rank {} of {}, but sees rank {} of {}; is it another MPI than "
        "Open "
        "MPI, or srun without --mpi=pmix?",
        name_of(place.launcher), place.rank, place.world_size, transport->rank(), transport->world_size());
  }
  Job job{place, nullptr, [mpi = transport.get()](int exit_code) { mpi->abort(exit_code); }};
  job.place.local_rank = transport->local_rank();
  job.place.local_size = transport->local_size();
  job.transport = std::move(transport);
  return job;
}

}  // namespace

Networks networks() {
  return {.mpi = true, .join = join};
}

}  // namespace athanor::dist
