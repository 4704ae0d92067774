#include "examples/serve/http_server.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <microhttpd.h>
#include <sys/resource.h>

#include "examples/serve/answers.h"
#include "examples/serve/connections.h"
#include "examples/serve/listener.h"
#include "examples/serve/request.h"
#include "tensor/error.h"
#include "tensor/printable.h"

namespace athanor {
extern const unsigned char kServePage[];
extern const std::size_t kServePageBytes;
}  // namespace athanor

namespace athanor::serve {
namespace {

// Maximum part of a refused body to read and discard: a client answered before it has sent everything sees a
// broken connection instead of the answer.
constexpr std::uint64_t kPassedOver = 64 << 20;
constexpr std::size_t kConnectionBytes = 32 << 10;  // headers must fit
constexpr std::uint64_t kUnknownLength = std::numeric_limits<std::uint64_t>::max();

struct Known {
  std::string_view path, methods;
  Route route;
};
constexpr Known kRoutes[] = {{"/", "GET, HEAD", Route::page},
                             {"/predict", "POST", Route::predict},
                             {"/healthz", "GET, HEAD", Route::health},
                             {"/metrics", "GET, HEAD", Route::metrics}};

std::string_view header(MHD_Connection* connection, const char* name) {
  const char* const value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value ? value : "";
}

/// As stated in its header; 0 without a body; kUnknownLength for a chunked one.
std::uint64_t content_length(MHD_Connection* connection) {
  if (!header(connection, MHD_HTTP_HEADER_TRANSFER_ENCODING).empty()) return kUnknownLength;
  const std::string_view text = header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
  std::uint64_t length = 0;
  std::from_chars(text.data(), text.data() + text.size(), length);
  return length;
}

/// `?top=K`. Throws ArgumentError.
std::int64_t top_of(MHD_Connection* connection) {
  const char* const value = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "top");
  if (!value) return 3;
  const std::string_view text = value;
  std::int64_t top = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), top);
  ATH_CHECK(error == std::errc() && end == text.data() + text.size() && top >= 1,
            "top: must be a whole number of at least 1, but got '{}'", printable(text.substr(0, 40)));
  return top;
}

/// Each connection needs an open file.
void allow_open_files(int connections) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = static_cast<rlim_t>(connections) + 64;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ATH_CHECK(limit.rlim_cur >= wanted,
            "--max-connections: needs {} open files, but the system allows {} (ulimit -n)", wanted,
            limit.rlim_max);
}

struct FreeResponse {
  void operator()(MHD_Response* response) const { MHD_destroy_response(response); }
};
using Response = std::unique_ptr<MHD_Response, FreeResponse>;

}  // namespace

struct HttpServer::Impl {
  const ServerOptions options;
  Service& service;
  Metrics& metrics;
  Listener listener;
  Connections connections;
  std::atomic<bool> draining = false;
  MHD_Daemon* daemon = nullptr;

  Impl(ServerOptions given, Service& to, Metrics& counts)
      : options(std::move(given)),
        service(to),
        metrics(counts),
        listener(options.host, options.port),
        connections(options.timeout, counts) {}

  std::shared_ptr<Request> begin(MHD_Connection* connection, const char* url, const char* method);
  bool must_answer_now(MHD_Connection* connection, const Request& request) const;
  bool receive(Request& request, const char* bytes, std::size_t count);
  bool complete(MHD_Connection* connection, const std::shared_ptr<Request>& request);
  void predict(MHD_Connection* connection, const std::shared_ptr<Request>& request);
  MHD_Result send(MHD_Connection* connection, Request& request) const;
  MHD_Result handle(MHD_Connection* connection, const char* url, const char* method, const char* upload,
                    std::size_t* upload_bytes, std::shared_ptr<Request>*& held);
  void completed(std::shared_ptr<Request>& request);
  void start();
};

/// Everything known from the headers.
std::shared_ptr<Request> HttpServer::Impl::begin(MHD_Connection* connection, const char* url,
                                                 const char* method) {
  auto request = std::make_shared<Request>();
  request->method = method;
  request->path = url;
  ++metrics.active_requests;
  for (const Known& known : kRoutes) {
    if (request->path != known.path) continue;
    request->route = known.route;
    const bool fits = known.route == Route::predict ? request->method == "POST"
                                                    : request->method == "GET" || request->method == "HEAD";
    if (!fits) {
      request->allow = known.methods;
      request->reply = refusal(405, fmt::format("{} takes {}", known.path, known.methods));
    }
  }
  if (request->route == Route::unknown) {
    request->reply = refusal(404, "there are /, /predict, /healthz and /metrics");
  } else if (!request->reply && request->route == Route::predict) {
    const std::uint64_t length = content_length(connection);
    if (length != kUnknownLength && length > static_cast<std::uint64_t>(options.max_body_bytes)) {
      request->reply = refusal(413, fmt::format("the body must have at most {} bytes, but has {}",
                                                options.max_body_bytes, length));
    } else {
      request->body = std::make_shared<Body>(metrics);
    }
  }
  const auto* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  request->connection = static_cast<Connection*>(info->socket_context);
  connections.begin(request->connection, request);
  return request;
}

/// Refuses at once clients that ask before sending, and those with endless bodies.
bool HttpServer::Impl::must_answer_now(MHD_Connection* connection, const Request& request) const {
  if (!request.reply) return false;
  const std::uint64_t length = content_length(connection);
  return !header(connection, MHD_HTTP_HEADER_EXPECT).empty() ||
         (length != kUnknownLength &&
          length > static_cast<std::uint64_t>(options.max_body_bytes) + kPassedOver);
}

/// False if the connection must be closed.
bool HttpServer::Impl::receive(Request& request, const char* bytes, std::size_t count) {
  request.received += count;
  const auto most = static_cast<std::uint64_t>(options.max_body_bytes);
  if (request.received > most + kPassedOver) return false;
  if (!request.body) return true;
  if (request.received > most) {
    request.reply = refusal(413, fmt::format("the body must have at most {} bytes, but has more", most));
    request.body.reset();
  } else if (!request.body->append(bytes, count, options.max_bodies_bytes)) {
    request.reply = refusal(503, "there are too many requests; try again soon");
    request.body.reset();
  }
  return true;
}

/// The whole request has arrived. True if its reply is known; else the service has it.
bool HttpServer::Impl::complete(MHD_Connection* connection, const std::shared_ptr<Request>& request) {
  request->is_complete = true;
  connections.received(request->connection);
  if (request->reply) return true;
  switch (request->route) {
    case Route::predict:
      try {
        predict(connection, request);
        return false;
      } catch (const ArgumentError& error) {
        request->reply = refusal(400, error.what());
      }
      break;
    case Route::health: request->reply = health(*service.model()); break;
    case Route::metrics: request->reply = Reply{200, metrics.text()}; break;
    default: request->reply = Reply{200, {}}; break;  // the page, added by send()
  }
  return true;
}

/// Throws ArgumentError on client errors, before the connection is suspended.
void HttpServer::Impl::predict(MHD_Connection* connection, const std::shared_ptr<Request>& request) {
  const auto job = std::make_shared<Job>();
  job->top = top_of(connection);
  const std::shared_ptr<Body> body = std::move(request->body);
  job->body = {body, &body->text()};
  const std::string_view type = header(connection, MHD_HTTP_HEADER_CONTENT_TYPE);
  if (is_multipart(type)) {
    job->files = parse_multipart(type, body->text());
    ATH_CHECK(!job->files.empty(), "multipart: there must be a file, but there is none");
  } else {
    ATH_CHECK(!body->text().empty(), "the body must be a JPEG, PNG or WebP, but is empty");
    job->files.push_back({.bytes = body->text()});
  }
  request->images = job->files.size();
  job->done = [request, job = job.get()] {
    try {
      request->wake(reply_to(*job));
    } catch (const std::exception&) {
      request->wake({500, "{}\n"});
    }
  };
  request->wait(connection);
  try {
    if (!service.submit(job)) request->wake(refusal(503, "the queue is full; try again soon"));
  } catch (const std::exception& error) {  // the connection is suspended, so it must be woken
    request->wake(refusal(500, error.what()));
  }
}

MHD_Result HttpServer::Impl::send(MHD_Connection* connection, Request& request) const {
  const Reply& reply = *request.reply;
  const bool is_page = request.route == Route::page && reply.code == 200;
  const Response response(
      is_page ? MHD_create_response_from_buffer(kServePageBytes, const_cast<unsigned char*>(kServePage),
                                                MHD_RESPMEM_PERSISTENT)
              : MHD_create_response_from_buffer(reply.text.size(), const_cast<char*>(reply.text.data()),
                                                MHD_RESPMEM_MUST_COPY));
  if (!response) return MHD_NO;
  const auto add = [&](const char* name, const char* value) {
    MHD_add_response_header(response.get(), name, value);
  };
  const bool is_metrics = request.route == Route::metrics && reply.code == 200;
  add(MHD_HTTP_HEADER_CONTENT_TYPE, is_page      ? "text/html; charset=utf-8"
                                    : is_metrics ? "text/plain; version=0.0.4; charset=utf-8"
                                                 : "application/json");
  add(MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  add("X-Content-Type-Options", "nosniff");
  if (is_page) {
    add("Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src blob: data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  }
  if (!request.allow.empty()) add(MHD_HTTP_HEADER_ALLOW, request.allow.c_str());
  if (reply.code == 503) add(MHD_HTTP_HEADER_RETRY_AFTER, "1");
  // Idle connections must leave room for new ones, which would wait until the others time out.
  const bool crowded = 4 * connections.count() > 3 * static_cast<std::size_t>(options.max_connections);
  if (draining || crowded) add(MHD_HTTP_HEADER_CONNECTION, "close");
  request.sent_code = reply.code;
  return MHD_queue_response(connection, static_cast<unsigned int>(reply.code), response.get());
}

/// libmicrohttpd calls it after the headers, for each piece of the body, at the end of the body, and again
/// when a suspended connection has been woken.
MHD_Result HttpServer::Impl::handle(MHD_Connection* connection, const char* url, const char* method,
                                    const char* upload, std::size_t* upload_bytes,
                                    std::shared_ptr<Request>*& held) {
  if (!held) {
    held = new std::shared_ptr<Request>(begin(connection, url, method));
    if (!must_answer_now(connection, **held)) return MHD_YES;
    connections.received((*held)->connection);
    return send(connection, **held);
  }
  Request& request = **held;
  if (*upload_bytes > 0) {
    const bool goes_on = receive(request, upload, *upload_bytes);
    *upload_bytes = 0;
    return goes_on ? MHD_YES : MHD_NO;
  }
  if (!request.is_complete && !complete(connection, *held)) return MHD_YES;
  return send(connection, request);
}

void HttpServer::Impl::completed(std::shared_ptr<Request>& request) {
  const int code = request->sent_code                           ? request->sent_code
                   : connections.timed_out(request->connection) ? 408
                                                                : 499;  // nginx's code for a closed client
  const double seconds = std::chrono::duration<double>(Clock::now() - request->begin).count();
  --metrics.active_requests;
  metrics.count_request(code);
  metrics.request_seconds.add(seconds);
  connections.end(request->connection);
  if (options.verbose) {
    std::fprintf(
        stderr, "athanor serve: %s\n",
        fmt::format("{} {} {}, {} bytes, {} image{}, {:.1f} ms", printable(request->method).substr(0, 20),
                    printable(request->path).substr(0, 80), code, request->received, request->images,
                    request->images == 1 ? "" : "s", 1000 * seconds)
            .c_str());
  }
}

void HttpServer::Impl::start() {
  const auto on_request = [](void* self, MHD_Connection* connection, const char* url, const char* method,
                             const char* /*version*/, const char* upload, std::size_t* upload_bytes,
                             void** context) {
    try {
      return static_cast<Impl*>(self)->handle(connection, url, method, upload, upload_bytes,
                                              *reinterpret_cast<std::shared_ptr<Request>**>(context));
    } catch (const std::exception& error) {  // out of memory: closes only this connection
      std::fprintf(stderr, "athanor serve: a request was aborted: %s\n", printable(error.what()).c_str());
      return MHD_NO;
    }
  };
  const auto on_completed = [](void* self, MHD_Connection*, void** context, MHD_RequestTerminationCode) {
    const std::unique_ptr<std::shared_ptr<Request>> held(static_cast<std::shared_ptr<Request>*>(*context));
    *context = nullptr;
    if (held) static_cast<Impl*>(self)->completed(*held);
  };
  const auto on_connection = [](void* self, MHD_Connection* connection, void** context,
                                MHD_ConnectionNotificationCode what) {
    Connections& all = static_cast<Impl*>(self)->connections;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
      *context = all.add(MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
    } else {
      all.remove(static_cast<Connection*>(*context));
    }
  };
  // Not epoll: with it, libmicrohttpd 0.9.75 stopped reading from all connections at 15,000 requests/s, until
  // they timed out.
  unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
  if (listener.is_ipv6()) flags |= MHD_USE_DUAL_STACK;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(options.timeout).count();
  daemon = MHD_start_daemon(flags, 0, nullptr, nullptr, +on_request, this,                                //
                            MHD_OPTION_LISTEN_SOCKET, listener.socket(),                                  //
                            MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(options.max_connections),  //
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes,                         //
                            MHD_OPTION_CONNECTION_TIMEOUT, static_cast<unsigned>(seconds + 1),            //
                            MHD_OPTION_NOTIFY_COMPLETED, +on_completed, this,                             //
                            MHD_OPTION_NOTIFY_CONNECTION, +on_connection, this, MHD_OPTION_END);
  if (!daemon) detail::fail<BackendError>("serve: libmicrohttpd {} does not start", MHD_get_version());
}

HttpServer::HttpServer(ServerOptions options, Service& service, Metrics& metrics) {
  allow_open_files(options.max_connections);
  impl_ = std::make_unique<Impl>(std::move(options), service, metrics);
  impl_->start();
}

HttpServer::~HttpServer() {
  stop_accepting();
  for (const auto& request : impl_->connections.unanswered())
    request->wake(refusal(503, "the server is shutting down"));
  // Lets woken connections send their answers before they are closed.
  for (int i = 0; i < 100 && !impl_->connections.unanswered().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  MHD_stop_daemon(impl_->daemon);
}

std::string HttpServer::url() const {
  return impl_->listener.url();
}

bool HttpServer::is_loopback() const {
  return impl_->listener.is_loopback();
}

void HttpServer::stop_accepting() {
  if (impl_->draining.exchange(true)) return;
  MHD_quiesce_daemon(impl_->daemon);
  impl_->listener.stop(impl_->daemon);
}

bool HttpServer::busy() const {
  return impl_->connections.busy();
}

}  // namespace athanor::serve
