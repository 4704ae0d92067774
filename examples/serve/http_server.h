#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "examples/serve/metrics.h"
#include "examples/serve/service.h"

namespace athanor::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  ///< 0: one that is free
  int max_connections = 512;
  std::int64_t max_body_bytes = 16 << 20;     ///< of one request
  std::int64_t max_bodies_bytes = 256 << 20;  ///< of all requests at a time
  /// That a request's headers may take, and its body; then its connection is closed, as are idle ones.
  std::chrono::milliseconds timeout{30'000};
  bool verbose = false;  ///< a line on stderr for each request
};

/// The service over HTTP 1.1, by libmicrohttpd: one thread, driven by events, for all connections. A
/// connection whose images are being classified is suspended, so that slow clients cost no thread.
/// docs/reference/serving.md says what it answers.
class HttpServer {
 public:
  /// Listens and answers from now on. Throws ArgumentError where it cannot. The service must stay.
  HttpServer(ServerOptions options, Service& service, Metrics& metrics);
  /// Closes all connections. Requests that are still unanswered are answered with 503 first.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// http://127.0.0.1:8080
  std::string url() const;
  /// Whether only this machine reaches it.
  bool is_loopback() const;
  /// Refuses new connections. Those that are there are closed behind their next answer.
  void stop_accepting();
  /// Whether a request is under way.
  bool busy() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::serve
