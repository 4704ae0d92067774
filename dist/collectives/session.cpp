#include "dist/collectives/session.h"

#include "tensor/base/error.h"

namespace athanor::dist {

void Session::check_free(const char* who, const void* owner) const {
  if (!failure_.empty())
    detail::fail<PeerLostError>("{}: ranks cannot communicate after an error: {}", who, failure_);
  ATH_CHECK(
      !owner_ || owner_ == owner,
      "{}: the communicator must be free, but buckets of a backward pass are in flight; call reduce() first",
      who);
}

void Session::hold(const char* who, const void* owner) {
  check_free(who, owner);
  owner_ = owner;
}

void Session::release(const void* owner) {
  if (owner_ == owner) owner_ = nullptr;
}

void Session::give_up(const std::string& why) {
  if (!failure_.empty()) return;
  failure_ = why;
  transport_.abandon();
}

}  // namespace athanor::dist
