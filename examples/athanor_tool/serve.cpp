#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <pthread.h>

#include "examples/serve/http_server.h"
#include "examples/serve/service.h"
#include "tensor/base/error.h"
#include "tensor/base/free_memory.h"
#include "tensor/base/printable.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/run_main.h"
#include "trainer/tool/tool_main.h"

namespace athanor::tool {
namespace {

struct ServeOptions {
  std::string model;
  std::string host = "127.0.0.1";
  std::int64_t port = 8080, max_batch = 32, max_queue = 256, threads = 0;
  double max_delay_ms = 2, max_body_mb = 16, max_memory_mb = 256, timeout_s = 30, deadline_s = 10,
         drain_s = 10;
  std::int64_t max_connections = 512, max_megapixels = 50, max_queue_megapixels = 1000;
  std::string memory_limit;
  std::vector<std::string> allowed_origins;
  bool verbose = false;
};

template <class... Args> void say(fmt::format_string<Args...> format, Args&&... args) {
  std::fprintf(stderr, "athanor serve: %s\n",
               printable(fmt::format(format, std::forward<Args>(args)...)).c_str());
}

void check_in(const char* flag, double low, double high, double value) {
  ATH_CHECK(value >= low && value <= high, "{}: must be in [{}, {}], but got {}", flag, low, high, value);
}

/// As a browser sends it: scheme, host and port in lower case, without a usual port and a path.
std::string origin_of(const std::string& text) {
  std::string origin = read_flag::lower_case(text);
  for (const auto& [scheme, port] : {std::pair{"http://", ":80"}, {"https://", ":443"}}) {
    if (origin.starts_with(scheme) && origin.ends_with(port)) origin.resize(origin.rfind(':'));
  }
  const std::size_t host = origin.find("://");
  const bool is_origin =
      host != std::string::npos && host > 0 && host + 3 < origin.size() &&
      origin.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-_:[]", host + 3) == std::string::npos;
  ATH_CHECK(origin == "*" || is_origin,
            "--allow-origin: must be * or a site such as https://example.org, without a path, but got '{}'",
            printable(text));
  return origin;
}

void check(const ServeOptions& options) {
  check_in("--port", 0, 65535, static_cast<double>(options.port));
  check_in("--max-batch", 1, 4096, static_cast<double>(options.max_batch));
  check_in("--max-queue", 1, 100'000, static_cast<double>(options.max_queue));
  check_in("--threads", 0, 1024, static_cast<double>(options.threads));
  check_in("--max-connections", 1, 100'000, static_cast<double>(options.max_connections));
  check_in("--max-megapixels", 1, 100, static_cast<double>(options.max_megapixels));
  check_in("--max-queue-megapixels", 1, 1e6, static_cast<double>(options.max_queue_megapixels));
  check_in("--max-delay-ms", 0, 10'000, options.max_delay_ms);
  check_in("--max-body-mb", 0.001, 1024, options.max_body_mb);
  check_in("--max-memory-mb", options.max_body_mb, 1e6, options.max_memory_mb);
  check_in("--timeout-s", 0.1, 3600, options.timeout_s);
  check_in("--deadline-s", 0.001, 3600, options.deadline_s);
  check_in("--drain-s", 0, 3600, options.drain_s);
  for (const std::string& origin : options.allowed_origins) (void)origin_of(origin);
}

std::int64_t bytes(double megabytes) {
  return static_cast<std::int64_t>(megabytes * 1e6);
}

serve::ServiceOptions service_options(const ServeOptions& options) {
  return {.model = options.model,
          .max_batch = static_cast<std::size_t>(options.max_batch),
          .max_delay = std::chrono::microseconds(static_cast<std::int64_t>(options.max_delay_ms * 1000)),
          .max_queue = static_cast<std::size_t>(options.max_queue),
          .max_queue_pixels = options.max_queue_megapixels * 1'000'000,
          .max_age = std::chrono::milliseconds(static_cast<std::int64_t>(options.deadline_s * 1000)),
          .threads = static_cast<int>(options.threads),
          .max_image_pixels = options.max_megapixels * 1'000'000};
}

/// Divides the memory that the loaded model leaves of --memory-limit; by default, of what the system has
/// left. Returns the part for the bodies of requests; images are decoded in the rest.
std::int64_t share_memory(const ServeOptions& options, serve::Service& service) {
  const std::int64_t bodies = bytes(options.max_memory_mb), body = bytes(options.max_body_mb);
  if (options.memory_limit.empty()) {
    const std::int64_t largest = options.max_megapixels * 12'000'000;  // any image alone
    if (const auto free = free_memory()) service.limit_decoding(std::max(*free / 10 * 9 - bodies, largest));
    return bodies;
  }
  const std::int64_t limit = read_flag::byte_count("--memory-limit", options.memory_limit);
  const std::int64_t held = serve::resident_bytes(), left = limit - held;
  ATH_CHECK(left / 2 >= body,
            "--memory-limit: must be at least {} bytes, {} of the loaded model and twice --max-body-mb for "
            "requests, but is {}",
            held + 2 * body, held, limit);
  service.limit_decoding(left - std::min(bodies, left / 2));
  return std::min(bodies, left / 2);
}

serve::ServerOptions server_options(const ServeOptions& options, std::int64_t max_bodies_bytes) {
  std::vector<std::string> origins;
  for (const std::string& origin : options.allowed_origins) origins.push_back(origin_of(origin));
  return {.host = options.host,
          .port = static_cast<int>(options.port),
          .max_connections = static_cast<int>(options.max_connections),
          .max_body_bytes = bytes(options.max_body_mb),
          .max_bodies_bytes = max_bodies_bytes,
          .timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout_s * 1000)),
          .allowed_origins = std::move(origins),
          .verbose = options.verbose};
}

/// One thread waits for SIGHUP, SIGINT and SIGTERM, so that they interrupt no other thread. While this lives
/// they are blocked in it and in all threads started by it. A SIGINT that is ignored (in the background of a
/// script) stays ignored.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
      struct sigaction now {};
      if (signal == SIGINT && sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) continue;
      sigaddset(&set_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    std::signal(SIGPIPE, SIG_IGN);  // writing to a closed log must not end the server
  }
  ~Signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// The next one.
  int wait() const {
    int signal = 0;
    while (sigwait(&set_, &signal) != 0) continue;
    return signal;
  }
  /// The next one within that time, or 0.
  int wait_for(std::chrono::nanoseconds time) const {
    const timespec limit{.tv_sec = time.count() / 1'000'000'000, .tv_nsec = time.count() % 1'000'000'000};
    return std::max(0, sigtimedwait(&set_, nullptr, &limit));
  }

 private:
  sigset_t set_{}, before_{};
};

std::string describe(const serve::Service& service) {
  const ModelInfo& info = service.model()->predictor.info();
  const ImageSpec& images = info.images;
  return fmt::format("{} of {}, {}, images {}x{}x{}", info.model, service.options().model.string(),
                     counted_outputs(info), images.height, images.width, images.channels);
}

void reload(serve::Service& service, serve::Metrics& metrics) {
  const auto begin = serve::Clock::now();
  try {
    service.reload();
    ++metrics.reloads;
    const std::chrono::duration<double> time = serve::Clock::now() - begin;
    say("reloaded {} in {:.2f} s", describe(service), time.count());
  } catch (const std::exception& error) {
    ++metrics.failed_reloads;
    say("the model is unchanged: {}", error.what());
  }
}

/// Answers pending requests for at most that time; a second signal ends the process at once.
void drain(const Signals& signals, const serve::HttpServer& server, double most_seconds) {
  using namespace std::chrono_literals;
  const auto end = serve::Clock::now() + std::chrono::duration<double>(most_seconds);
  while (server.busy() && serve::Clock::now() < end) {
    const int signal = signals.wait_for(20ms);
    if (signal == SIGINT || signal == SIGTERM) {
      say("ended immediately by a second signal");
      std::_Exit(128 + signal);
    }
  }
}

void serve_model(const ServeOptions& options) {
  check(options);
  const Signals signals;
  serve::Metrics metrics;
  serve::Service service(service_options(options), metrics);
  {
    const std::int64_t max_bodies_bytes = share_memory(options, service);
    serve::HttpServer server(server_options(options, max_bodies_bytes), service, metrics);
    fmt::print("{}/: {}, {} thread{}, batches of up to {} within {} ms\n", server.url(),
               printable(describe(service)), service.options().threads,
               service.options().threads == 1 ? "" : "s", options.max_batch, options.max_delay_ms);
    std::fflush(stdout);
    if (!server.is_loopback())
      say("warning: other machines can reach this address, without encryption or a password");
    int signal = signals.wait();
    for (; signal == SIGHUP; signal = signals.wait()) reload(service, metrics);
    server.stop_accepting();
    drain(signals, server, options.drain_s);
    const bool all = !server.busy();
    say("ended by {} after {} images{}", signal == SIGINT ? "SIGINT" : "SIGTERM", metrics.images.load(),
        all ? "" : "; some requests were not answered in time");
    if (all) return;
  }
  std::fflush(stdout);
  std::_Exit(kExitDone);  // a batch may take too long to wait for
}

void add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "serve a trained classifier over HTTP");
  const auto options = std::make_shared<ServeOptions>();
  const auto add = [&](const char* flag, auto& value, const char* what, const char* word) {
    command->add_option(flag, value, what)->option_text(word);
  };
  command->add_option("MODEL", options->model, "folder of a run, or its model.safetensors")->required();
  add("--host", options->host, "address to listen on; 0.0.0.0: all [127.0.0.1]", "ADDRESS");
  add("--port", options->port, "port to listen on; 0: any free one [8080]", "N");
  add("--max-batch", options->max_batch, "most images per batch [32]", "N");
  add("--max-delay-ms", options->max_delay_ms, "longest time an image waits for others [2]", "MS");
  add("--max-queue", options->max_queue, "most images in the server; more are answered with 503 [256]", "N");
  add("--threads", options->threads, "threads for the model, and as many for decoding [all cores]", "N");
  add("--max-body-mb", options->max_body_mb, "largest request; larger ones get 413 [16]", "MB");
  add("--max-memory-mb", options->max_memory_mb, "memory for the bodies of all requests [256]", "MB");
  add("--max-megapixels", options->max_megapixels, "largest image; larger ones are refused [50]", "N");
  add("--max-queue-megapixels", options->max_queue_megapixels,
      "most pixels in the server; a request of more gets 413 [1000]", "N");
  add("--memory-limit", options->memory_limit, "memory of the process, as 2GiB [what the system has left]",
      "BYTES");
  add("--max-connections", options->max_connections, "most open connections; others wait [512]", "N");
  add("--timeout-s", options->timeout_s, "longest time for a request to arrive [30]", "S");
  add("--deadline-s", options->deadline_s, "longest time for an answer; later ones are 503 [10]", "S");
  add("--drain-s", options->drain_s, "longest time to answer open requests at the end [10]", "S");
  command
      ->add_option("--allow-origin", options->allowed_origins,
                   "site whose pages may use the server; *: all; repeatable")
      ->allow_extra_args(false)  // else it takes MODEL, too
      ->option_text("ORIGIN");
  command->add_flag("--verbose", options->verbose, "print a line per request on stderr");
  command->callback([options] { serve_model(*options); });
}

const Command serve_command("serve", add_serve);

}  // namespace
}  // namespace athanor::tool
