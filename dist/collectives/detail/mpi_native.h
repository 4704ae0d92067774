#pragma once

#define OMPI_SKIP_MPICXX  // its C++ bindings are gone from the standard
#include <memory>
#include <mutex>

#include <mpi.h>

#include "dist/collectives/native.h"

namespace athanor::dist {

/// MPI is asked for threads in turns (MPI_THREAD_SERIALIZED): every call is made holding this. Where there is
/// only one thread, as under SMPI, which runs other ranks in the middle of a call, nothing is locked.
std::unique_lock<std::mutex> mpi_turn(bool threads);

/// Throws BackendError with what MPI says, where a call `what` has not returned MPI_SUCCESS.
void check_mpi(int status, const char* what);

/// MPI's own non-blocking collective as one of ours. `abandoned` becomes true where
/// it dies before it is done: MPI cannot cancel it, and may write its memory yet. What it has moved goes on
/// the record of `transport`.
std::unique_ptr<Collective> make_mpi_native(Transport& transport, MPI_Comm comm, const NativeCall& call,
                                            bool threads, bool* abandoned);

}  // namespace athanor::dist
