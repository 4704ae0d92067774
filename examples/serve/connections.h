#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "examples/serve/batcher.h"
#include "examples/serve/metrics.h"

namespace athanor::serve {

struct Request;  // examples/serve/request.h

/// A client's connection, guarded by its server's Connections.
struct Connection {
  enum class State { idle, receiving, answering };

  int socket = -1;
  State state = State::idle;
  Clock::time_point since = {};  ///< start of this state
  bool is_new = true;            ///< no request so far
  bool timed_out = false;
  std::weak_ptr<Request> request = {};
  std::string target = {};  ///< of its newest request, as received; used by the daemon's thread alone
};

/// The open connections and the start of their states. A thread ends those that take too long:
/// libmicrohttpd's timeout restarts with each byte, so slow senders would stay forever.
class Connections {
 public:
  Connections(Clock::duration timeout, Metrics& metrics);
  ~Connections();

  Connection* add(int socket);
  /// Call it before the socket is closed.
  void remove(Connection* connection);
  /// A request's headers have arrived. Its body has as much time as the headers had.
  void begin(Connection* connection, const std::shared_ptr<Request>& request);
  /// The whole request has arrived.
  void received(Connection* connection);
  /// The request is answered or given up; the connection may carry another.
  void end(Connection* connection);
  bool timed_out(const Connection* connection) const;

  /// Number of open ones.
  std::size_t count() const;
  /// Whether a request is in progress or may be: a new connection has not sent anything yet.
  bool busy() const;
  /// Requests received but not yet answered.
  std::vector<std::shared_ptr<Request>> unanswered() const;

 private:
  void watch();
  void end_late_ones();

  const Clock::duration timeout_;
  Metrics& metrics_;
  mutable std::mutex mutex_;
  std::condition_variable ending_;
  bool ended_ = false;
  std::unordered_set<Connection*> all_;
  std::thread watcher_;
};

}  // namespace athanor::serve
