#include "dist/transports/transport.h"

#include "dist/collectives/session.h"
#include "tensor/error.h"

namespace athanor::dist {

Transport::Transport(int rank, int world_size, Stream stream)
    : rank_(rank),
      world_size_(world_size),
      stream_(std::move(stream)),
      session_(std::make_unique<Session>(*this)) {}
Transport::~Transport() = default;

std::unique_ptr<Transport> Transport::duplicate() {
  detail::fail<>(
      "transport: batch norms over all ranks need a second network beside the gradients', of which this kind "
      "has none; use MPI or NCCL, or norms of each rank's own");
}

}  // namespace athanor::dist
