// Of a build that found no MPI.

#include "dist/transports/make_transport.h"
#include "tensor/error.h"

namespace athanor::dist {
namespace {

void refuse(Job& job, Device) {
  detail::fail<BackendError>(
      "ranks: {} has started {} of them, but this build has no network between processes: install "
      "libopenmpi-dev and openmpi-bin, and configure again",
      name_of(job.place.launcher), job.place.world_size);
}

}  // namespace

Networks networks() {
  return {.join = refuse};
}

}  // namespace athanor::dist
