#pragma once

#define OMPI_SKIP_MPICXX  // its C++ bindings are gone from the standard
#include <memory>
#include <mutex>

#include <mpi.h>

#include "dist/collectives/native.h"

namespace athanor::dist {

/// Serialises MPI calls (MPI_THREAD_SERIALIZED): every call holds this lock. Without threads, as under SMPI,
/// which runs other ranks in the middle of a call, there is no lock.
std::unique_lock<std::mutex> mpi_turn(bool threads);

/// Throws BackendError with MPI's text if the call `what` has not returned MPI_SUCCESS.
void check_mpi(int status, const char* what);

/// MPI's own non-blocking collective as a Collective. Sets `abandoned` if it is destroyed before completion:
/// MPI cannot cancel it and may still write its memory. Bytes moved go on the record of `transport`.
std::unique_ptr<Collective> make_mpi_native(Transport& transport, MPI_Comm comm, const NativeCall& call,
                                            bool threads, bool* abandoned);

}  // namespace athanor::dist
