#include "dist/transports/make_transport.h"

#include <cstdlib>
#include <cstring>

#include "dist/collectives/communicator.h"
#include "dist/transports/shared_memory.h"
#include "dist/transports/staged_transport.h"
#include "optim/flat.h"
#include "tensor/base/error.h"

#if defined(ATHANOR_WITH_MPI)
#include "dist/transports/mpi_transport.h"
#endif
#if defined(ATHANOR_WITH_NCCL)
#include <array>
#include <set>

#include "dist/collectives/exchange.h"
#include "dist/launch/rendezvous.h"
#include "dist/transports/nccl_transport.h"
#include "tensor/cuda/runtime.h"
#endif

namespace athanor::dist {
namespace {

#if defined(ATHANOR_WITH_NCCL)

constexpr char kNccl[] = ", NCCL";

// Without MPI: distributes rank 0's id over TCP. With NCCL_COMM_ID, such an address, NCCL creates the id
// itself. NCCL identifies GPUs by PCI address, ignoring CUDA_VISIBLE_DEVICES, and refuses to share one.
void join_nccl(ProcessGroup& job, Device device) {
  const RankInfo& info = job.info;
  NcclId id = info.rank == 0 || info.launcher == Launcher::nccl_comm ? new_nccl_id() : NcclId{};
  if (info.launcher != Launcher::nccl_comm) {
    const std::vector<std::byte> shared = share_from_rank_0(info, id, job.timeout);
    ATH_CHECK(shared.size() == id.size(), "ranks: rank 0 must send an NCCL id, but sends {} bytes",
              shared.size());
    std::memcpy(id.data(), shared.data(), id.size());
  }
  job.abort = [](int exit_code) { std::_Exit(exit_code); };
  job.network = kNccl;
  job.transport = std::make_unique<NcclTransport>(id, info.rank, info.world_size,
                                                  NcclOptions{.device = device, .timeout = job.timeout});
}

#endif

#if defined(ATHANOR_WITH_MPI)

#if defined(ATHANOR_WITH_NCCL)

// All ranks use one network: NCCL only if no ranks share a GPU.
bool have_a_gpu_each(Communicator& comm, Device device) {
  cudaDeviceProp properties{};
  ATH_TRY(cudaGetDeviceProperties(&properties, device.index));
  const auto uuids = gather_values(comm, std::to_array(properties.uuid.bytes));
  return std::set(uuids.begin(), uuids.end()).size() == uuids.size();
}

NcclId broadcast_id(Communicator& comm) {
  ::unsetenv("NCCL_COMM_ID");  // mpirun has priority, but NCCL would use this for its id
  return gather_values(comm, comm.rank() == 0 ? new_nccl_id() : NcclId{})[0];
}

#endif

void join_gpus(ProcessGroup& job, Transport& mpi, Device device) {
#if defined(ATHANOR_WITH_NCCL)
  Communicator comm(mpi, {.timeout = job.timeout});
  if (have_a_gpu_each(comm, device)) {
    job.network = kNccl;
    job.transport = std::make_unique<NcclTransport>(broadcast_id(comm), mpi.rank(), mpi.world_size(),
                                                    NcclOptions{.device = device, .timeout = job.timeout});
    return;
  }
  job.network = ", MPI through the host's memory: ranks share a GPU";
#else
  job.network = ", MPI through the host's memory: this build has no NCCL";
#endif
  job.transport = std::make_unique<StagedTransport>(mpi, device);
}

void join_mpi(ProcessGroup& job, Device device) {
  auto transport = std::make_unique<MpiTransport>(MpiOptions{.timeout = job.timeout});
  MpiTransport& mpi = *transport;
  job.below = std::move(transport);
  job.abort = [&mpi](int exit_code) { mpi.abort(exit_code); };
  RankInfo& info = job.info;
  if (mpi.world_size() != info.world_size || mpi.rank() != info.rank) {
    detail::fail<BackendError>(
        "ranks: MPI must agree with {} on rank {} of {}, but reports rank {} of {}; is it not Open MPI, or "
        "srun without --mpi=pmix?",
        name_of(info.launcher), info.rank, info.world_size, mpi.rank(), mpi.world_size());
  }
  info.local_rank = mpi.local_rank();
  info.local_size = mpi.local_size();
  if (device.is_cuda()) return join_gpus(job, mpi, device);
  job.transport = std::move(job.below);
}

#endif

void join_shared_memory(ProcessGroup& job, Device device) {
  const RankInfo& info = job.info;
  job.abort = [](int exit_code) { std::_Exit(exit_code); };
  job.transport = std::make_unique<SharedMemoryTransport>(
      std::make_shared<RankMemory>(info.shared_memory, info.world_size), info.rank);
  if (!device.is_cuda()) return;
  job.network = ", through the host's memory: this build has no NCCL";
  job.below = std::move(job.transport);
  job.transport = std::make_unique<StagedTransport>(*job.below, device);
}

void join(ProcessGroup& job, Device device) {
  const RankInfo& info = job.info;
  if (info.shared_memory >= 0) return join_shared_memory(job, device);
#if defined(ATHANOR_WITH_NCCL)
  if (device.is_cuda() && info.launcher != Launcher::mpirun) return join_nccl(job, device);
#endif
#if defined(ATHANOR_WITH_MPI)
  if (info.launcher == Launcher::mpirun || info.launcher == Launcher::slurm) return join_mpi(job, device);
#endif
  if (device.is_cuda()) {
    detail::fail<BackendError>(
        "ranks: {} has started {} of them with tensors on {}, but this build has no network between GPUs; "
        "use mpirun, --device cpu, or one GPU",
        name_of(info.launcher), info.world_size, device.str());
  }
#if defined(ATHANOR_WITH_MPI)
  detail::fail<BackendError>(
      "ranks: in this build they communicate through MPI, which {} has not started; use --devices {}, "
      "mpirun, or srun --mpi=pmix",
      name_of(info.launcher), info.world_size);
#else
  detail::fail<BackendError>(
      "ranks: {} has started {} of them, but this build has no network between processes: use "
      "--devices {} on one machine, or install libopenmpi-dev and openmpi-bin, and configure again",
      name_of(info.launcher), info.world_size, info.world_size);
#endif
}

}  // namespace

Networks networks() {
  Networks found{.join = join};
#if defined(ATHANOR_WITH_NCCL)
  found.nccl = true;
#endif
  return found;
}

}  // namespace athanor::dist
