#pragma once

namespace athanor::dist {

/// Environment settings for Open MPI 4 and (the last ones) 5, used unless the user sets them. They allow
/// ranks as root, and more ranks than cores, without binding ranks to cores. Open MPI 4 waits by spinning;
/// with more ranks than cores, each then blocks the one it waits for, a thousand times slower. It detects
/// this on one machine, but not across several. hwloc would warn on every rank that it cannot find the cores
/// (in a container without /sys). Scripts and tests, which start mpirun themselves, have the same settings in
/// scripts/open_mpi.env.
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
