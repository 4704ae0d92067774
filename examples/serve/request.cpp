#include "examples/serve/request.h"

#include <iterator>
#include <utility>

#include <microhttpd.h>

namespace athanor::serve {

Body::~Body() {
  metrics_.body_bytes -= std::ssize(text_) + (replaced_by_ ? std::ssize(*replaced_by_) : 0);
}

bool Body::count(std::size_t more, std::int64_t most_of_all) {
  const auto bytes = static_cast<std::int64_t>(more);
  if (metrics_.body_bytes.fetch_add(bytes) + bytes <= most_of_all) return true;
  metrics_.body_bytes -= bytes;
  return false;
}

bool Body::append(const char* bytes, std::size_t count_of_bytes, std::int64_t most_of_all) {
  if (!count(count_of_bytes, most_of_all)) return false;
  text_.append(bytes, count_of_bytes);
  return true;
}

bool Body::replace(std::shared_ptr<const std::string> by, std::int64_t most_of_all) {
  if (!count(by->size(), most_of_all)) return false;
  replaced_by_ = std::move(by);
  metrics_.body_bytes -= std::ssize(text_);
  std::string().swap(text_);
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
