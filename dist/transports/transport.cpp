#include "dist/transports/transport.h"

#include "dist/collectives/collective.h"
#include "tensor/base/error.h"

namespace athanor::dist {

Transport::Transport(int rank, int world_size, Stream stream)
    : rank_(rank),
      world_size_(world_size),
      stream_(std::move(stream)),
      session_(std::make_unique<Session>(*this)) {}
Transport::~Transport() = default;

void Transport::check_peer(int peer) const {
  ATH_CHECK(peer >= 0 && peer < world_size_ && peer != rank_,
            "transport: a message must go to another rank of {}, but rank {} names {}", world_size_, rank_,
            peer);
}

std::unique_ptr<Collective> Transport::native(const NativeCall&) {
  return nullptr;
}

std::unique_ptr<Transport> Transport::duplicate() {
  detail::fail<>(
      "transport: batch norms and gathers over all ranks need a second network beside that of the gradients, "
      "which this kind of transport lacks");
}

}  // namespace athanor::dist
