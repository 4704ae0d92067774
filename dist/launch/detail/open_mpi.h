#pragma once

namespace athanor::dist {

/// What Open MPI 4 and, in the end, 5 want to hear in the environment, where the user has not said otherwise:
/// to start ranks as root, more of them than cores, of which each may use all cores. Open MPI 4 waits by
/// spinning, and with more ranks than cores each waits for the one that does not run: a thousand times
/// slower. On one machine it notices by itself; with ranks on several, it does not. hwloc would say of every
/// rank that it cannot find out which cores there are (in a container without /sys), which nobody asks it
/// here. For scripts and tests, which start mpirun themselves, the same is in scripts/open_mpi.env.
inline constexpr struct {
  const char *name, *value;
} kOpenMpiSettings[] = {
    {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
    {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
    {"OMPI_MCA_hwloc_base_binding_policy", "none"},
    {"OMPI_MCA_mpi_yield_when_idle", "1"},
    {"HWLOC_HIDE_ERRORS", "2"},
    {"PRTE_ALLOW_RUN_AS_ROOT", "1"},
    {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
    {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
    {"PRTE_MCA_hwloc_default_binding_policy", "none"},
};

}  // namespace athanor::dist
