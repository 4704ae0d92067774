#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <optional>

#include <microhttpd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "examples/serve/strict_head.h"
#include "fuzz.h"

// The bytes of a connection, by way of libmicrohttpd and fault_of_head(): each request that is accepted must
// be the next one that a reader of RFC 9112 finds, of the same length. Otherwise one could be smuggled past
// it.

using namespace athanor;

namespace {

struct Request {
  std::string method, target, body;
  bool operator==(const Request&) const = default;
};

// As RFC 9112 says ------------------------------------------------------------------------------------------

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

bool equal_names(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return (c < 0x80 && std::isalnum(c)) ||
           std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool is_line(std::string_view text) {
  return std::ranges::none_of(text, [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; });
}

/// What was up to the next CRLF, and is taken from `rest`.
std::optional<std::string_view> take_line(std::string_view& rest) {
  const std::size_t end = rest.find("\r\n");
  if (end == rest.npos) return std::nullopt;
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + 2);
  return line;
}

/// The requests at the beginning of the bytes, up to the first that breaks a rule or is chunked.
struct Strict {
  std::vector<Request> requests;
  bool ends_with_chunked = false;
};

Strict read_strictly(std::string_view rest) {
  Strict all;
  for (;;) {
    // Empty lines before a request are passed over, also those that end with LF alone (section 2.2).
    while (rest.starts_with("\r\n") || rest.starts_with('\n'))
      rest.remove_prefix(rest.front() == '\r' ? 2 : 1);
    const auto first = take_line(rest);
    if (!first || !is_line(*first)) return all;
    const std::size_t method_end = first->find(' '), target_end = first->rfind(' ');
    if (method_end == first->npos || method_end == target_end) return all;
    Request one{std::string(first->substr(0, method_end)),
                std::string(first->substr(method_end + 1, target_end - method_end - 1)),
                {}};
    const std::string_view version = first->substr(target_end + 1);
    if (!is_token(one.method) || one.target.find(' ') != one.target.npos) return all;
    if (version.size() != 8 || !version.starts_with("HTTP/1.") || !std::isdigit(version[7])) return all;
    std::uint64_t length = 0;
    int lengths = 0, codings = 0, hosts = 0;
    for (;;) {
      const auto line = take_line(rest);
      if (!line) return all;
      if (line->empty()) break;
      const std::size_t colon = line->find(':');
      if (!is_line(*line) || colon == line->npos || !is_token(line->substr(0, colon))) return all;
      const std::string_view name = line->substr(0, colon), value = trimmed(line->substr(colon + 1));
      hosts += equal_names(name, "host");
      codings += equal_names(name, "transfer-encoding");
      if (!equal_names(name, "content-length")) continue;
      ++lengths;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), length);
      if (value.empty() || error != std::errc() || end != value.data() + value.size()) return all;
    }
    if (lengths + codings > 1 || hosts > 1) return all;
    all.ends_with_chunked = codings > 0;
    if (codings > 0 || length > rest.size()) return all;
    one.body = rest.substr(0, length);
    rest.remove_prefix(length);
    all.requests.push_back(std::move(one));
  }
}

// As the server does ----------------------------------------------------------------------------------------

struct Connection {
  std::string target;
  std::vector<Request> accepted;
};
Connection* current = nullptr;

MHD_Result answer(MHD_Connection* connection, unsigned code) {
  MHD_Response* const response = MHD_create_response_from_buffer(0, nullptr, MHD_RESPMEM_PERSISTENT);
  if (code == 400) MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
  const MHD_Result result = MHD_queue_response(connection, code, response);
  MHD_destroy_response(response);
  return result;
}

MHD_Result on_request(void*, MHD_Connection* connection, const char*, const char* method, const char* version,
                      const char* upload, std::size_t* upload_bytes, void** held) {
  auto*& request = *reinterpret_cast<Request**>(held);
  if (!request) {
    request = new Request{method, current->target, {}};
    return serve::fault_of_head(connection, method, current->target, version) ? answer(connection, 400)
                                                                              : MHD_YES;
  }
  if (*upload_bytes > 0) {
    request->body.append(upload, *upload_bytes);
    *upload_bytes = 0;
    return MHD_YES;
  }
  current->accepted.push_back(*request);
  return answer(connection, 200);
}

MHD_Daemon* start() {
  const auto on_target = [](void*, const char* target, MHD_Connection*) -> void* {
    current->target = target ? target : "";
    return nullptr;
  };
  const auto on_completed = [](void*, MHD_Connection*, void** held, MHD_RequestTerminationCode) {
    delete static_cast<Request*>(*held);
    *held = nullptr;
  };
  return MHD_start_daemon(MHD_USE_NO_LISTEN_SOCKET, 0, nullptr, nullptr, on_request, nullptr,
                          MHD_OPTION_CONNECTION_MEMORY_LIMIT, std::size_t{32} << 10,
                          MHD_OPTION_URI_LOG_CALLBACK, +on_target, nullptr, MHD_OPTION_NOTIFY_COMPLETED,
                          +on_completed, nullptr, MHD_OPTION_END);
}

/// Runs the daemon until it has closed the connection, whose other end is `client`.
void run(MHD_Daemon* daemon, int client) {
  char answers[4096];
  for (int round = 0; round < 1000; ++round) {
    MHD_run_wait(daemon, 1);
    const ssize_t got = ::recv(client, answers, sizeof answers, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return;
  }
  std::abort();  // it hangs
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static MHD_Daemon* const daemon = start();
  // libmicrohttpd takes a line that begins with NUL for an empty one, and writes NULs over the ends of lines:
  // nobody sees afterwards that the client had sent them. Other NULs are refused
  // (tests/programs/tool_serve.py).
  if (fuzz::text_of(data, size).find('\0') != std::string_view::npos) return 0;
  int ends[2];
  if (!daemon || size > 60'000 || ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 0;
  Connection connection;
  current = &connection;
  const std::string_view bytes = fuzz::text_of(data, size);
  if (::send(ends[0], bytes.data(), bytes.size(), MSG_NOSIGNAL) != std::ssize(bytes)) std::abort();
  ::shutdown(ends[0], SHUT_WR);
  sockaddr address{.sa_family = AF_UNIX, .sa_data = {}};
  if (MHD_add_connection(daemon, ends[1], &address, sizeof address) != MHD_YES) std::abort();
  run(daemon, ends[0]);
  ::close(ends[0]);

  const Strict strict = read_strictly(bytes);
  const std::size_t checked = std::min(strict.requests.size(), connection.accepted.size());
  if (!std::equal(strict.requests.begin(), strict.requests.begin() + static_cast<std::ptrdiff_t>(checked),
                  connection.accepted.begin()))
    std::abort();
  if (connection.accepted.size() > checked && !strict.ends_with_chunked) std::abort();
  return 0;
}
