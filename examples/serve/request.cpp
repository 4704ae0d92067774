#include "examples/serve/request.h"

#include <microhttpd.h>

namespace athanor::serve {

Body::~Body() {
  metrics_.body_bytes -= static_cast<std::int64_t>(text_.size());
}

bool Body::append(const char* bytes, std::size_t count, std::int64_t most_of_all) {
  const auto more = static_cast<std::int64_t>(count);
  if (metrics_.body_bytes.fetch_add(more) + more > most_of_all) {
    metrics_.body_bytes -= more;
    return false;
  }
  text_.append(bytes, count);
  return true;
}

void Request::wait(MHD_Connection* suspended) {
  const std::lock_guard lock(mutex_);
  suspended_ = suspended;
  MHD_suspend_connection(suspended);
}

void Request::wake(const Reply& with) {
  const std::lock_guard lock(mutex_);
  if (!suspended_) return;
  reply = with;
  MHD_resume_connection(suspended_);
  suspended_ = nullptr;
}

}  // namespace athanor::serve
