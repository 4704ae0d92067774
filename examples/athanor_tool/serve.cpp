#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <pthread.h>

#include "examples/serve/http_server.h"
#include "examples/serve/models.h"
#include "examples/serve/service.h"
#include "examples/serve/token.h"
#include "tensor/base/error.h"
#include "tensor/base/free_memory.h"
#include "tensor/base/printable.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/run_main.h"
#include "trainer/tool/tool_main.h"

namespace athanor::tool {
namespace {

struct ServeOptions {
  std::vector<std::string> models;
  std::string folder;
  std::string host = "127.0.0.1";
  std::int64_t port = 8080, max_batch = 32, max_queue = 256, threads = 0;
  double max_delay_ms = 2, max_body_mb = 16, max_memory_mb = 256, timeout_s = 30, deadline_s = 10,
         drain_s = 10;
  std::int64_t max_connections = 512, max_megapixels = 50, max_queue_megapixels = 1000;
  std::int64_t versions = 1;
  double poll_s = 0;
  std::string memory_limit, precision = "f32";
  std::optional<std::string> token, token_file;  // not empty ones: an unset variable must not open the server
  std::vector<std::string> allowed_origins;
  bool model_control = false, verbose = false;
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
  check_in("--versions", 1, 1000, static_cast<double>(options.versions));
  check_in("--poll-s", 0, 86'400, options.poll_s);
  ATH_CHECK(!options.models.empty() || !options.folder.empty(),
            "serve: there must be a MODEL, or a folder of models as --models DIR");
  ATH_CHECK(options.versions == 1 || !options.folder.empty(),
            "--versions: is for the folder of --models DIR, but there is none");
  ATH_CHECK(!options.token || !options.token_file,
            "--token: there must be one token, but --token-file is given too");
  for (const std::string& origin : options.allowed_origins) (void)origin_of(origin);
}

std::int64_t bytes(double megabytes) {
  return static_cast<std::int64_t>(megabytes * 1e6);
}

/// RUN, or NAME=RUN. A path with `=` in it is a path if it exists.
serve::NamedPath named(const std::string& text) {
  const std::size_t at = text.find('=');
  std::error_code ignored;
  if (at == std::string::npos || std::filesystem::exists(text, ignored)) return {serve::kUnnamed, text};
  return {text.substr(0, at), text.substr(at + 1)};
}

serve::ModelsOptions models_options(const ServeOptions& options, int threads) {
  serve::ModelsOptions all{.folder = options.folder,
                           .versions = static_cast<std::size_t>(options.versions),
                           .max_batch = static_cast<std::size_t>(options.max_batch),
                           .threads = threads,
                           .precision = read_flag::prediction_precision("--precision", options.precision)};
  for (const std::string& model : options.models) all.given.push_back(named(model));
  return all;
}

serve::ServiceOptions service_options(const ServeOptions& options) {
  return {.max_batch = static_cast<std::size_t>(options.max_batch),
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

serve::Token token_of(const ServeOptions& options) {
  if (options.token) return serve::Token(*options.token);
  if (!options.token_file) return {};
  return serve::Token(serve::read_token(*options.token_file));
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
          .token = token_of(options),
          .allows_control = options.model_control,
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

/// What a server says first: the only model, or the names of all.
std::string describe(const serve::Models& models) {
  if (const auto only = models.standard(); only && models.list().size() == 1) return describe(*only);
  std::vector<std::string> names;
  for (const serve::Models::Listed& one : models.list()) {
    if (one.model && (names.empty() || names.back() != one.name)) names.push_back(one.name);
  }
  return fmt::format("{} model{}{}{}", names.size(), names.size() == 1 ? "" : "s", names.empty() ? "" : ": ",
                     fmt::join(names, ", "));
}

/// The next signal that ends the server. Meanwhile SIGHUP loads what there is again, and so does time.
int wait_for_end(const Signals& signals, serve::Models& models, double poll_s) {
  while (true) {
    const auto pause =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(poll_s));
    const int signal = poll_s > 0 ? signals.wait_for(pause) : signals.wait();
    if (signal != SIGHUP && signal != 0) return signal;
    try {
      models.refresh(signal == SIGHUP);
    } catch (const std::exception& error) {  // no memory
      say("the models are unchanged: {}", error.what());
    }
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
  serve::Models models(models_options(options, service.options().threads), metrics,
                       [](const std::string& line) { say("{}", line); });
  {
    const std::int64_t max_bodies_bytes = share_memory(options, service);
    serve::HttpServer server(server_options(options, max_bodies_bytes), models, service, metrics);
    fmt::print("{}/: {}, {} thread{}, batches of up to {} within {} ms\n", server.url(),
               printable(describe(models)), service.options().threads,
               service.options().threads == 1 ? "" : "s", options.max_batch, options.max_delay_ms);
    std::fflush(stdout);
    if (const std::string note = no_faster_than_f32(models.options().precision, kCpu); !note.empty())
      say("--precision: {}", note);
    if (!server.is_loopback()) {
      const bool has_token = options.token || options.token_file;
      say("warning: other machines can reach this address, without encryption{}",
          has_token ? "" : " or a password");
    }
    const int signal = wait_for_end(signals, models, options.poll_s);
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
  CLI::App* command = app.add_subcommand("serve", "serve trained models over HTTP");
  const auto options = std::make_shared<ServeOptions>();
  const auto add = [&](const char* flag, auto& value, const char* what, const char* word) {
    command->add_option(flag, value, what)->option_text(word);
  };
  command->add_option(
      "MODEL", options->models,
      "folder of a run, or its model.safetensors; NAME=MODEL gives it a name; several are served "
      "together");
  add("--models", options->folder, "folder with models as NAME/VERSION/, a run's folder each", "DIR");
  add("--versions", options->versions, "how many of a name's newest versions answer [1]", "N");
  add("--poll-s", options->poll_s, "time between looks for new or changed models; 0: on SIGHUP alone [0]",
      "S");
  command->add_flag("--model-control", options->model_control, "let clients load and unload models");
  add("--host", options->host, "address to listen on; 0.0.0.0: all [127.0.0.1]", "ADDRESS");
  add("--port", options->port, "port to listen on; 0: any free one [8080]", "N");
  add("--max-batch", options->max_batch, "most images per batch [32]", "N");
  add("--max-delay-ms", options->max_delay_ms, "longest time an image waits for others [2]", "MS");
  add("--max-queue", options->max_queue, "most images in the server; more are answered with 503 [256]", "N");
  add("--threads", options->threads, "threads for the model, and as many for decoding [all cores]", "N");
  add("--precision", options->precision, "f32, bf16 or f16 [f32]", "P");
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
  // CLI11 takes an empty text for no text, if it fills an optional itself.
  const auto add_text = [&](const char* flag, std::optional<std::string>& value, const char* what,
                            const char* word) {
    command
        ->add_option_function<std::string>(
            flag, [&value](const std::string& given) { value = given; }, what)
        ->option_text(word);
  };
  add_text("--token", options->token, "what requests must show as Authorization: Bearer TOKEN", "TOKEN");
  add_text("--token-file", options->token_file, "a file with that token, which other users cannot list",
           "FILE");
  command
      ->add_option("--allow-origin,--cors", options->allowed_origins,
                   "site whose pages may use the server; *: all; repeatable")
      ->allow_extra_args(false)  // else it takes MODEL, too
      ->option_text("ORIGIN");
  command->add_flag("--verbose", options->verbose, "print a line per request on stderr");
  command->callback([options] { serve_model(*options); });
}

const Command serve_command("serve", add_serve);

}  // namespace
}  // namespace athanor::tool
