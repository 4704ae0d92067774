#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "examples/serve/metrics.h"
#include "examples/serve/models.h"
#include "examples/serve/service.h"
#include "examples/serve/token.h"

namespace athanor::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  ///< 0: a free one
  int max_connections = 512;
  std::int64_t max_body_bytes = 16 << 20;     ///< of one request
  std::int64_t max_bodies_bytes = 256 << 20;  ///< of all concurrent requests
  /// Time limit for a request's headers, and for its body; then its connection is closed, as are idle ones.
  std::chrono::milliseconds timeout{30'000};
  /// Origins of pages on other sites that may use the service, such as https://example.org, or "*": all.
  std::vector<std::string> allowed_origins = {};
  Token token = {};             ///< which all requests must have but those for the page and its health
  bool allows_control = false;  ///< clients may load and unload models
  bool verbose = false;         ///< a line on stderr for each request
};

/// The service over HTTP 1.1, by libmicrohttpd: one event-driven thread for all connections. A connection
/// whose images are being classified is suspended, so slow clients need no threads. docs/reference/serving.md
/// documents the responses. Requests of the Open Inference Protocol are read by the threads that decode, and
/// models are loaded by one of its own, so that no request waits for another's body or model.
class HttpServer {
 public:
  /// Listens and answers from now on. Throws ArgumentError if it cannot. The models and the service must
  /// outlive it.
  HttpServer(ServerOptions options, Models& models, Service& service, Metrics& metrics);
  /// Answers pending requests with 503, then closes all connections.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// http://127.0.0.1:8080
  std::string url() const;
  /// Whether only this machine can reach it.
  bool is_loopback() const;
  /// Refuses new connections, and closes existing ones after their next answer.
  void stop_accepting();
  /// Whether a request is in progress.
  bool busy() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::serve
