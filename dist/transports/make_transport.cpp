#include "dist/transports/make_transport.h"

#include <cstdlib>
#include <cstring>

#include "dist/collectives/communicator.h"
#include "dist/transports/staged_transport.h"
#include "optim/flat.h"
#include "tensor/error.h"

#if defined(ATHANOR_WITH_MPI)
#include "dist/transports/mpi_transport.h"
#endif
#if defined(ATHANOR_WITH_NCCL)
#include "dist/launch/rendezvous.h"
#include "dist/transports/nccl_transport.h"
#endif

namespace athanor::dist {
namespace {

#if defined(ATHANOR_WITH_NCCL)

// Without MPI: rank 0's id over TCP. NCCL_COMM_ID is such an address, and NCCL makes the id of it by itself.
void join_nccl(Job& job, Device device) {
  const Place& place = job.place;
  if (place.local_size > cuda_device_count()) {
    detail::fail<BackendError>(
        "ranks: NCCL takes one rank per GPU, but {} has started {} on this machine with {}; start them with "
        "mpirun, by which ranks may share one",
        name_of(place.launcher), place.local_size, cuda_device_count());
  }
  NcclId id = place.rank == 0 || place.launcher == Launcher::nccl_comm ? new_nccl_id() : NcclId{};
  if (place.launcher != Launcher::nccl_comm) {
    const std::vector<std::byte> shared = share_from_rank_0(place, id, {.timeout = job.timeout});
    ATH_CHECK(shared.size() == id.size(), "ranks: rank 0 must send an id of NCCL's, but sends {} bytes",
              shared.size());
    std::memcpy(id.data(), shared.data(), id.size());
  }
  job.abort = [](int exit_code) { std::_Exit(exit_code); };
  job.transport =
      std::make_unique<NcclTransport>(id, place.rank, place.world_size, NcclOptions{.device = device});
}

#endif

#if defined(ATHANOR_WITH_MPI)

std::unique_ptr<Transport> over_mpi(Transport& mpi, Device device, [[maybe_unused]] const Place& place) {
#if defined(ATHANOR_WITH_NCCL)
  // All use the same network: NCCL only where no rank of the job shares its GPU.
  Communicator comm(mpi);
  const Tensor shares = make_flat(1, DType::i32, kCpu), bytes = make_flat(sizeof(NcclId), DType::u8, kCpu);
  *shares.data<std::int32_t>() = place.local_size > cuda_device_count();
  comm.run(*comm.all_reduce(shares, kernels::Combine::max));
  if (*shares.data<std::int32_t>() == 0) {
    NcclId id{};
    ::unsetenv("NCCL_COMM_ID");  // mpirun comes first, and NCCL would make its id of that
    if (mpi.rank() == 0) id = new_nccl_id();
    std::memcpy(bytes.raw_data(), id.data(), id.size());
    comm.run(*comm.broadcast(bytes, 0));
    std::memcpy(id.data(), bytes.raw_data(), id.size());
    return std::make_unique<NcclTransport>(id, mpi.rank(), mpi.world_size(), NcclOptions{.device = device});
  }
#endif
  return std::make_unique<StagedTransport>(mpi, device);
}

void join_mpi(Job& job, Device device) {
  auto transport = std::make_unique<MpiTransport>(MpiOptions{.timeout = job.timeout});
  MpiTransport& mpi = *transport;
  job.below = std::move(transport);
  job.abort = [&mpi](int exit_code) { mpi.abort(exit_code); };
  Place& place = job.place;
  if (mpi.world_size() != place.world_size || mpi.rank() != place.rank) {
    detail::fail<BackendError>(
        "ranks: MPI must see what {} says, rank {} of {}, but sees rank {} of {}; is it another MPI than "
        "Open "
        "MPI, or srun without --mpi=pmix?",
        name_of(place.launcher), place.rank, place.world_size, mpi.rank(), mpi.world_size());
  }
  place.local_rank = mpi.local_rank();
  place.local_size = mpi.local_size();
  job.transport = device.is_cuda() ? over_mpi(mpi, device, place) : std::move(job.below);
}

#endif

void join(Job& job, Device device) {
  const Place& place = job.place;
#if defined(ATHANOR_WITH_NCCL)
  if (device.is_cuda() && place.launcher != Launcher::mpirun) return join_nccl(job, device);
#endif
#if defined(ATHANOR_WITH_MPI)
  if (place.launcher == Launcher::mpirun || place.launcher == Launcher::slurm) return join_mpi(job, device);
#endif
  if (device.is_cuda()) {
    detail::fail<BackendError>(
        "ranks: {} has started {} of them with tensors on {}, but this build has no network between GPUs; "
        "use mpirun, --device cpu, or one GPU",
        name_of(place.launcher), place.world_size, device.str());
  }
  detail::fail<BackendError>(
      "ranks: in this build they talk through MPI, which {} has not started; use --devices {}, mpirun, or "
      "srun "
      "--mpi=pmix",
      name_of(place.launcher), place.world_size);
}

}  // namespace

Networks networks() {
  Networks found{.join = join};
#if defined(ATHANOR_WITH_MPI)
  found.mpi = true;
#endif
#if defined(ATHANOR_WITH_NCCL)
  found.nccl = true;
#endif
  return found;
}

}  // namespace athanor::dist
