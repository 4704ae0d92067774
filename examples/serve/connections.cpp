#include "examples/serve/connections.h"

#include <algorithm>
#include <string_view>

#include <sys/socket.h>

#include "examples/serve/request.h"

namespace athanor::serve {
namespace {

using State = Connection::State;

constexpr std::chrono::seconds kFirstWord{1};
constexpr std::string_view kTooSlow =
    "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nContent-Length: 47\r\n"
    "Connection: close\r\n\r\n{\"error\": \"the request did not come in time\"}\r\n";
static_assert(kTooSlow.size() - kTooSlow.find('{') == 47);

}  // namespace

Connections::Connections(Clock::duration timeout, Metrics& metrics)
    : timeout_(timeout), metrics_(metrics), watcher_([this] { watch(); }) {}

Connections::~Connections() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    ending_.notify_all();
  }
  watcher_.join();
}

Connection* Connections::add(int socket) {
  auto connection = std::make_unique<Connection>(Connection{.socket = socket, .since = Clock::now()});
  const std::lock_guard lock(mutex_);
  all_.insert(connection.get());
  ++metrics_.connections;
  return connection.release();
}

void Connections::remove(Connection* connection) {
  const std::unique_ptr<Connection> owner(connection);
  const std::lock_guard lock(mutex_);
  all_.erase(connection);
  --metrics_.connections;
}

void Connections::begin(Connection* connection, const std::shared_ptr<Request>& request) {
  const std::lock_guard lock(mutex_);
  connection->state = State::receiving;
  connection->since = Clock::now();
  connection->is_new = false;
  connection->request = request;
}

void Connections::received(Connection* connection) {
  const std::lock_guard lock(mutex_);
  connection->state = State::answering;
  connection->since = Clock::now();
}

void Connections::end(Connection* connection) {
  const std::lock_guard lock(mutex_);
  connection->state = State::idle;
  connection->since = Clock::now();
  connection->request.reset();
}

bool Connections::timed_out(const Connection* connection) const {
  const std::lock_guard lock(mutex_);
  return connection->timed_out;
}

std::size_t Connections::count() const {
  const std::lock_guard lock(mutex_);
  return all_.size();
}

bool Connections::busy() const {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  return std::any_of(all_.begin(), all_.end(), [&](const Connection* one) {
    return one->state != State::idle || (one->is_new && now - one->since < kFirstWord);
  });
}

std::vector<std::shared_ptr<Request>> Connections::unanswered() const {
  std::vector<std::shared_ptr<Request>> found;
  const std::lock_guard lock(mutex_);
  for (const Connection* one : all_) {
    if (auto request = one->request.lock(); request && one->state == State::answering)
      found.push_back(std::move(request));
  }
  return found;
}

void Connections::watch() {
  const auto pause = std::clamp<Clock::duration>(timeout_ / 4, std::chrono::milliseconds(50), kFirstWord);
  std::unique_lock lock(mutex_);
  while (!ending_.wait_for(lock, pause, [this] { return ended_; })) end_late_ones();
}

/// Only while the daemon waits for data, because then it does not write. It notices the end.
void Connections::end_late_ones() {
  const Clock::time_point now = Clock::now();
  for (Connection* const one : all_) {
    if (one->state == State::answering || one->timed_out || now - one->since < timeout_) continue;
    one->timed_out = true;
    if (one->state == State::receiving)
      (void)::send(one->socket, kTooSlow.data(), kTooSlow.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::shutdown(one->socket, SHUT_RDWR);
  }
}

}  // namespace athanor::serve
