#include "examples/serve/http_server.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <iterator>
#include <limits>
#include <new>
#include <optional>
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
#include "examples/serve/strict_head.h"
#include "examples/serve/worker.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"

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
constexpr std::size_t kControlBytes = 64 << 10;     // of the body of a request about models
constexpr char kJsonBytes[] = "Inference-Header-Content-Length";
constexpr std::uint64_t kUnknownLength = std::numeric_limits<std::uint64_t>::max();

struct Known {
  std::string_view path, methods;
  Route route;
};
constexpr Known kRoutes[] = {{"/", "GET, HEAD, OPTIONS", Route::page},
                             {"/predict", "POST, OPTIONS", Route::predict},
                             {"/healthz", "GET, HEAD, OPTIONS", Route::health},
                             {"/metrics", "GET, HEAD, OPTIONS", Route::metrics},
                             {"*", "OPTIONS", Route::options}};

std::string_view header(MHD_Connection* connection, const char* name) {
  const char* const value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value ? value : "";
}

Connection* connection_of(MHD_Connection* connection) {
  const auto* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return static_cast<Connection*>(info->socket_context);
}

/// Whether a method is one of a list such as "GET, HEAD".
bool is_one_of(std::string_view method, std::string_view methods) {
  for (std::string_view rest = methods; !rest.empty();) {
    const std::size_t end = std::min(rest.find(", "), rest.size());
    if (rest.substr(0, end) == method) return true;
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  return false;
}

/// As stated in its header; 0 without a body; kUnknownLength for a chunked one.
std::uint64_t content_length(MHD_Connection* connection) {
  if (!header(connection, MHD_HTTP_HEADER_TRANSFER_ENCODING).empty()) return kUnknownLength;
  const std::string_view text = header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
  std::uint64_t length = 0;
  std::from_chars(text.data(), text.data() + text.size(), length);
  return length;
}

/// Of the query, ?name=value; null if it has none.
const char* argument(MHD_Connection* connection, const char* name) {
  return MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
}

/// Throws ArgumentError, naming what it is.
std::int64_t whole_number(const char* what, std::string_view text, std::int64_t least) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  ATH_CHECK(error == std::errc() && end == text.data() + text.size() && number >= least,
            "{}: must be a whole number of at least {}, but got '{}'", what, least,
            printable(text.substr(0, 40)));
  return number;
}

/// `?top=K`. Throws ArgumentError.
std::int64_t top_of(MHD_Connection* connection) {
  const char* const value = argument(connection, "top");
  return value ? whole_number("top", value, 1) : 3;
}

/// Gives a job to the service. The connection is suspended, so it must be woken whatever happens.
void submit(Service& service, const std::shared_ptr<Request>& request, const std::shared_ptr<Job>& job) {
  request->images = job->files.size();
  try {
    switch (service.submit(job)) {
      case Admission::taken: break;
      case Admission::full: request->wake(refusal(503, "the queue is full; try again soon")); break;
      case Admission::too_large:
        request->wake(refusal(413, fmt::format("the images of a request must have at most {} megapixels, and "
                                               "each be decoded in at most {} MB, but they need more",
                                               service.options().max_queue_pixels / 1'000'000,
                                               service.decoding_bytes() / 1'000'000)));
    }
  } catch (const std::exception& error) {
    request->wake(refusal(500, error.what()));
  }
}

/// What `reply` returns wakes the request, or why there is none.
template <class Make> void wake(Request& request, const Make& reply) {
  try {
    request.wake(reply());
  } catch (const std::exception&) {
    request.wake({500, "{}\n"});
  }
}

/// A request of the Open Inference Protocol, by a thread that decodes.
struct Inference {
  Service& service;
  const std::int64_t max_bodies_bytes;
  std::shared_ptr<Request> request;
  std::shared_ptr<const Model> model;
  std::shared_ptr<Body> body;
  std::optional<std::uint64_t> json_bytes;
  Clock::time_point arrived = Clock::now();

  void operator()() {
    try {
      run();
    } catch (const ArgumentError& error) {
      request->wake(refusal(400, error.what()));
    } catch (const std::exception& error) {
      request->wake(refusal(500, error.what()));
    }
  }

 private:
  void run() {
    const ModelInfo& info = model->predictor.info();
    const auto asked = std::make_shared<InferenceRequest>(parse_inference_request(
        body->text(), json_bytes,
        {info.images, info.task, static_cast<std::int64_t>(service.options().max_queue)}));
    const auto job = std::make_shared<Job>();
    job->model = model;
    job->kind = asked->kind;
    job->top = 1;
    job->wants_all = true;
    job->arrived = arrived;
    if (asked->timeout) job->most_age = *asked->timeout;
    for (const std::string_view image : asked->images) job->files.push_back({.bytes = image});
    if (asked->data) {
      job->body = {body, asked->data.get()};
      if (!body->replace(std::move(asked->data), max_bodies_bytes)) {
        request->wake(refusal(503, "there are too many requests; try again soon"));
        return;
      }
    } else {
      job->body = {body, &body->text()};
    }
    body.reset();  // the job has it, until all images are decoded
    job->done = [request = request, asked, job = job.get()] {
      wake(*request, [&] { return inference_reply(*job, *asked); });
    };
    submit(service, request, job);
  }
};

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
  Models& models;
  Service& service;
  Metrics& metrics;
  Listener listener;
  Connections connections;
  std::atomic<bool> draining = false;
  MHD_Daemon* daemon = nullptr;
  Worker control;  // loads and unloads models

  Impl(ServerOptions given, Models& of, Service& to, Metrics& counts)
      : options(std::move(given)),
        models(of),
        service(to),
        metrics(counts),
        listener(options.host, options.port),
        connections(options.timeout, counts) {}

  std::shared_ptr<Request> begin(MHD_Connection* connection, const char* url, const char* method,
                                 const char* version);
  bool may_ask(MHD_Connection* connection, const Request& request) const;
  void route(MHD_Connection* connection, Request& request) const;
  void allow_origin(MHD_Connection* connection, Request& request) const;
  bool must_answer_now(MHD_Connection* connection, const Request& request) const;
  bool receive(Request& request, const char* bytes, std::size_t count);
  bool complete(MHD_Connection* connection, const std::shared_ptr<Request>& request);
  std::shared_ptr<const Model> chosen_model(MHD_Connection* connection, Request& request) const;
  bool predict(MHD_Connection* connection, const std::shared_ptr<Request>& request);
  bool answer_inference(MHD_Connection* connection, const std::shared_ptr<Request>& request);
  void infer(MHD_Connection* connection, const std::shared_ptr<Request>& request,
             std::shared_ptr<const Model> model);
  void change_model(MHD_Connection* connection, const std::shared_ptr<Request>& request);
  MHD_Result send(MHD_Connection* connection, Request& request) const;
  MHD_Result handle(MHD_Connection* connection, const char* url, const char* method, const char* version,
                    const char* upload, std::size_t* upload_bytes, std::shared_ptr<Request>*& held);
  void completed(std::shared_ptr<Request>& request);
  void start();
};

/// Everything known from the headers.
std::shared_ptr<Request> HttpServer::Impl::begin(MHD_Connection* connection, const char* url,
                                                 const char* method, const char* version) {
  auto request = std::make_shared<Request>();
  request->method = method;
  request->path = url;
  request->connection = connection_of(connection);
  ++metrics.active_requests;
  allow_origin(connection, *request);
  if (const char* const fault = fault_of_head(connection, method, request->connection->target, version)) {
    request->reply = refusal(400, fault);
    request->is_malformed = true;
  } else if (!may_ask(connection, *request)) {
    request->reply = refusal(401,
                             "the request must have a header Authorization: Bearer TOKEN with the "
                             "server's token");
  } else {
    route(connection, *request);
  }
  connections.begin(request->connection, request);
  return request;
}

/// Without the token: that the server is there, the page, which says nothing of the models, and what a
/// browser asks before it sends the token. Not /healthz?model=NAME, which tells names that there are.
bool HttpServer::Impl::may_ask(MHD_Connection* connection, const Request& request) const {
  static constexpr std::string_view kOpen[] = {"/", "/healthz", "/v2/health/live", "/v2/health/ready"};
  const bool is_open = std::find(std::begin(kOpen), std::end(kOpen), request.path) != std::end(kOpen) &&
                       (request.path != "/healthz" || !argument(connection, "model"));
  return request.method == MHD_HTTP_METHOD_OPTIONS || is_open ||
         options.token.allows(header(connection, MHD_HTTP_HEADER_AUTHORIZATION));
}

/// Finds the route. Sets the reply if it is known, else prepares for the body that the route takes.
void HttpServer::Impl::route(MHD_Connection* connection, Request& request) const {
  const auto* const known = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                         [&](const Known& one) { return request.path == one.path; });
  std::string methods;
  if (known != std::end(kRoutes)) {
    request.route = known->route;
    methods = known->methods;
  } else if (auto path = parse_inference_path(request.path)) {
    request.route = Route::inference;
    request.inference = std::move(*path);
    methods = request.inference.methods();
  } else {
    request.reply = refusal(404, "there are /, /predict, /healthz, /metrics and /v2");
    return;
  }
  if (!is_one_of(request.method, methods)) {
    request.reply = refusal(405, fmt::format("{} takes {}", printable(request.path), methods));
    request.allow = methods;
  } else if (request.method == MHD_HTTP_METHOD_OPTIONS) {
    request.route = Route::options;
    request.allow = methods;
    request.reply = Reply{204, {}};
  } else if (request.method == MHD_HTTP_METHOD_POST) {
    const std::uint64_t length = content_length(connection);
    if (length != kUnknownLength && length > static_cast<std::uint64_t>(options.max_body_bytes)) {
      request.reply = refusal(413, fmt::format("the body must have at most {} bytes, but has {}",
                                               options.max_body_bytes, length));
    } else {
      request.body = std::make_shared<Body>(metrics);
    }
  }
}

void HttpServer::Impl::allow_origin(MHD_Connection* connection, Request& request) const {
  const std::string_view origin = header(connection, MHD_HTTP_HEADER_ORIGIN);
  if (origin.empty()) return;
  for (const std::string& allowed : options.allowed_origins) {
    if (allowed == "*" || allowed == origin) request.origin = allowed;
  }
}

/// Refuses at once clients that ask before sending, and those with endless bodies.
bool HttpServer::Impl::must_answer_now(MHD_Connection* connection, const Request& request) const {
  if (!request.reply) return false;
  if (request.is_malformed) return true;
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
  try {
    switch (request->route) {
      case Route::predict: return predict(connection, request);
      case Route::inference: return answer_inference(connection, request);
      case Route::health:
        // Without a name, several models are one healthy server.
        if (const std::size_t names = models.names(); names > 1 && !argument(connection, "model"))
          request->reply = health(models.standard().get(), names);
        else if (const auto model = chosen_model(connection, *request))
          request->reply = health(model.get(), names);
        break;
      case Route::metrics: request->reply = Reply{200, metrics.text()}; break;
      default: request->reply = Reply{200, {}}; break;  // the page, added by send()
    }
  } catch (const ArgumentError& error) {
    request->reply = refusal(400, error.what());
  }
  return true;
}

/// `?model=NAME`, or the one that needs no name. Null if there is none, which the reply then says.
std::shared_ptr<const Model> HttpServer::Impl::chosen_model(MHD_Connection* connection,
                                                            Request& request) const {
  const char* const name = argument(connection, "model");
  std::shared_ptr<const Model> model = name ? models.find(name) : models.standard();
  if (!model) {
    request.reply =
        name ? no_model(models, name, {})
             : refusal(404, models.names() == 0 ? "there is no model yet"
                                                : "there are several models; choose one, as in ?model=NAME");
  }
  return model;
}

/// True if the reply is known. Throws ArgumentError on client errors, before the connection is suspended.
bool HttpServer::Impl::predict(MHD_Connection* connection, const std::shared_ptr<Request>& request) {
  const auto job = std::make_shared<Job>();
  job->model = chosen_model(connection, *request);
  if (!job->model) return true;
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
  job->done = [request, job = job.get()] { wake(*request, [&] { return reply_to(*job); }); };
  request->wait(connection);
  submit(service, request, job);
  return false;
}

/// As predict().
bool HttpServer::Impl::answer_inference(MHD_Connection* connection, const std::shared_ptr<Request>& request) {
  const InferencePath& path = request->inference;
  std::shared_ptr<const Model> model;
  if (path.what == InferencePath::metadata || path.what == InferencePath::model_ready ||
      path.what == InferencePath::infer) {
    model = models.find(path.model, path.version);
    if (!model) {
      request->reply = no_model(models, path.model, path.version);
      return true;
    }
  }
  switch (path.what) {
    case InferencePath::server: request->reply = server_metadata(); break;
    case InferencePath::live: request->reply = Reply{200, "{\"live\":true}\n"}; break;
    case InferencePath::ready:
      request->reply = draining ? refusal(503, "the server is shutting down") : server_ready(models);
      break;
    case InferencePath::metadata: request->reply = model_metadata(models, *model); break;
    case InferencePath::model_ready: request->reply = model_ready(*model); break;
    case InferencePath::infer: infer(connection, request, std::move(model)); return false;
    case InferencePath::index:
      ATH_CHECK(request->body->text().size() <= kControlBytes, "the body must have at most {} bytes",
                kControlBytes);
      request->reply = model_index(models, request->body->text());
      break;
    case InferencePath::load:
    case InferencePath::unload:
      if (!options.allows_control) {
        request->reply = refusal(403, "the server must be started with --model-control for that");
      } else if (!header(connection, MHD_HTTP_HEADER_ORIGIN).empty() && request->origin.empty()) {
        request->reply = refusal(403, "pages of that site may not do that");  // without being asked by a user
      } else {
        change_model(connection, request);
        return false;
      }
  }
  return true;
}

void HttpServer::Impl::infer(MHD_Connection* connection, const std::shared_ptr<Request>& request,
                             std::shared_ptr<const Model> model) {
  const std::string_view coding = header(connection, MHD_HTTP_HEADER_CONTENT_ENCODING);
  ATH_CHECK(coding.empty() || coding == "identity", "Content-Encoding: must be identity, but is '{}'",
            printable(coding.substr(0, 40)));
  std::optional<std::uint64_t> json_bytes;
  if (const std::string_view text = header(connection, kJsonBytes); !text.empty())
    json_bytes = static_cast<std::uint64_t>(whole_number(kJsonBytes, text, 0));
  Inference task{service,          options.max_bodies_bytes, request,
                 std::move(model), std::move(request->body), json_bytes};
  request->wait(connection);
  try {
    service.post(std::move(task));
  } catch (const std::exception& error) {  // no memory
    request->wake(refusal(500, error.what()));
  }
}

void HttpServer::Impl::change_model(MHD_Connection* connection, const std::shared_ptr<Request>& request) {
  request->wait(connection);
  control.post([this, request] {
    wake(*request, [&] {
      const InferencePath& path = request->inference;
      try {
        path.what == InferencePath::load ? models.load(path.model) : models.unload(path.model);
      } catch (const UnknownModelError& error) {
        return refusal(404, error.what());
      } catch (const std::exception& error) {
        return refusal(400, error.what());
      }
      return Reply{200, "{}\n"};
    });
  });
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
  add(MHD_HTTP_HEADER_CONTENT_TYPE, is_page            ? "text/html; charset=utf-8"
                                    : is_metrics       ? "text/plain; version=0.0.4; charset=utf-8"
                                    : reply.json_bytes ? "application/octet-stream"
                                                       : "application/json");
  if (reply.json_bytes) add(kJsonBytes, fmt::to_string(*reply.json_bytes).c_str());
  if (reply.code == 401) add(MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"athanor\"");
  add(MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  add("X-Content-Type-Options", "nosniff");
  if (is_page) {
    add("Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src blob: data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  }
  if (!request.allow.empty()) add(MHD_HTTP_HEADER_ALLOW, request.allow.c_str());
  if (!request.origin.empty()) {
    add(MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, request.origin.c_str());
    add("Access-Control-Expose-Headers", "Retry-After, Inference-Header-Content-Length");
    if (request.route == Route::options) {  // asked before a request that needs leave
      add("Access-Control-Allow-Methods", request.allow.c_str());
      add("Access-Control-Allow-Headers", "Content-Type, Authorization, Inference-Header-Content-Length");
      add("Access-Control-Max-Age", "600");
    }
  }
  // The answer depends on it, so a cache must not give it to another site.
  if (!options.allowed_origins.empty()) add(MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ORIGIN);
  if (reply.code == 503) add(MHD_HTTP_HEADER_RETRY_AFTER, "1");
  // Idle connections must leave room for new ones, which would wait until the others time out.
  const bool crowded = 4 * connections.count() > 3 * static_cast<std::size_t>(options.max_connections);
  // libmicrohttpd takes chunks that end in LF alone: what follows a chunked body may be a part of it for
  // others.
  const bool is_chunked = content_length(connection) == kUnknownLength;
  if (draining || crowded || request.is_malformed || is_chunked) add(MHD_HTTP_HEADER_CONNECTION, "close");
  request.sent_code = reply.code;
  return MHD_queue_response(connection, static_cast<unsigned int>(reply.code), response.get());
}

/// libmicrohttpd calls it after the headers, for each piece of the body, at the end of the body, and again
/// when a suspended connection has been woken.
MHD_Result HttpServer::Impl::handle(MHD_Connection* connection, const char* url, const char* method,
                                    const char* version, const char* upload, std::size_t* upload_bytes,
                                    std::shared_ptr<Request>*& held) {
  if (!held) {
    held = new std::shared_ptr<Request>(begin(connection, url, method, version));
    if (!must_answer_now(connection, **held)) return MHD_YES;
    connections.received((*held)->connection);
    return send(connection, **held);
  }
  Request& request = **held;
  if (*upload_bytes > 0) {
    const bool accepted = receive(request, upload, *upload_bytes);
    *upload_bytes = 0;
    return accepted ? MHD_YES : MHD_NO;
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
                    printable(request->path).substr(0, 80), code, request->received, request->images.load(),
                    request->images == 1 ? "" : "s", 1000 * seconds)
            .c_str());
  }
}

void HttpServer::Impl::start() {
  const auto on_request = [](void* self, MHD_Connection* connection, const char* url, const char* method,
                             const char* version, const char* upload, std::size_t* upload_bytes,
                             void** context) {
    try {
      return static_cast<Impl*>(self)->handle(connection, url, method, version, upload, upload_bytes,
                                              *reinterpret_cast<std::shared_ptr<Request>**>(context));
    } catch (const std::exception& error) {  // out of memory: closes only this connection
      std::fprintf(stderr, "athanor serve: a request was aborted: %s\n", printable(error.what()).c_str());
      return MHD_NO;
    }
  };
  const auto on_target = [](void*, const char* target, MHD_Connection* connection) -> void* {
    std::string& kept = connection_of(connection)->target;
    try {
      kept = target ? target : "";
    } catch (const std::bad_alloc&) {
      kept.clear();  // such a head is refused
    }
    return nullptr;
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
                            MHD_OPTION_URI_LOG_CALLBACK, +on_target, this,                                //
                            MHD_OPTION_NOTIFY_COMPLETED, +on_completed, this,                             //
                            MHD_OPTION_NOTIFY_CONNECTION, +on_connection, this, MHD_OPTION_END);
  if (!daemon) detail::fail<BackendError>("serve: libmicrohttpd {} does not start", MHD_get_version());
}

HttpServer::HttpServer(ServerOptions options, Models& models, Service& service, Metrics& metrics) {
  allow_open_files(options.max_connections);
  impl_ = std::make_unique<Impl>(std::move(options), models, service, metrics);
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
