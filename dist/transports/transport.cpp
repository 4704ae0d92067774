#include "dist/transports/transport.h"

#include "dist/collectives/collective.h"
#include "tensor/error.h"

namespace athanor::dist {

std::unique_ptr<Transport> Transport::duplicate() {
  detail::fail<>(
      "transport: batch norms over all ranks need a second network beside the gradients', of which this kind "
      "has none; use MPI or NCCL, or norms of each rank's own");
}

std::unique_ptr<Collective> Transport::native(const NativeCall&) {
  return nullptr;
}

const char* NativeCall::name() const {
  switch (what) {
    case What::all_reduce: return "native all_reduce";
    case What::reduce_scatter: return "native reduce_scatter";
    case What::all_gather: return "native all_gather";
    case What::broadcast: return "native broadcast";
  }
  return "native";
}

void Transport::check_free(const char* who, const void* owner) const {
  if (!failure_.empty())
    detail::fail<PeerLostError>("{}: ranks cannot communicate after an error: {}", who, failure_);
  ATH_CHECK(!owner_ || owner_ == owner,
            "{}: the network must be free, but buckets of a backward pass are under way; call reduce() first",
            who);
}

void Transport::hold(const char* who, const void* owner) {
  check_free(who, owner);
  owner_ = owner;
}

void Transport::release(const void* owner) {
  if (owner_ == owner) owner_ = nullptr;
}

void Transport::give_up(const std::string& why) {
  if (!failure_.empty()) return;
  failure_ = why;
  abandon();
}

}  // namespace athanor::dist
