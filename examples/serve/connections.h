#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

#include "examples/serve/batcher.h"
#include "examples/serve/metrics.h"

namespace athanor::serve {

struct Request;  // examples/serve/request.h

/// A client's connection. Its server's Connections guard all of it.
struct Connection {
  enum class State { idle, receiving, answering };

  int socket = -1;
  State state = State::idle;
  Clock::time_point since = {};  ///< it is in this state
  bool is_new = true;            ///< no request has come yet
  bool timed_out = false;
  std::weak_ptr<Request> request = {};
};

/// Who is connected, and since when. A thread ends what takes too long: libmicrohttpd's own timeout begins
/// anew with each byte, so that a client who sends one now and then would keep its place for ever.
class Connections {
 public:
  Connections(Clock::duration timeout, Metrics& metrics);
  ~Connections();

  Connection* add(int socket);
  /// Before its socket is closed.
  void remove(Connection* connection);
  /// A request's headers have come. Its body has as long as the headers had.
  void begin(Connection* connection, const std::shared_ptr<Request>& request);
  /// All of it has come.
  void received(Connection* connection);
  /// It is answered, or given up; the connection may carry another.
  void end(Connection* connection);
  bool timed_out(const Connection* connection) const;

  /// Whether a request is under way, or may be: who has connected just now has yet to say something.
  bool busy() const;
  /// Requests that have come and are not answered.
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
