#include "examples/serve/listener.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor::serve {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses addresses_of(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  ATH_CHECK(error == 0 && found, "--host: must be an address of this machine, but got '{}': {}",
            printable(host), ::gai_strerror(error));
  return {found, &::freeaddrinfo};
}

[[noreturn]] void fail_to_bind(const std::string& host, int port, int error) {
  if (error == EADDRINUSE) {
    detail::fail<>("--port: {} of {} must be free, but is in use; 0 chooses a free port", port,
                   printable(host));
  }
  if (error == EACCES)
    detail::fail<>("--port: must be one that this user may bind (1024 and up), but got {}", port);
  detail::fail<>("--host: must be an address of this machine, but got '{}': {}", printable(host),
                 std::strerror(error));
}

bool is_loopback_address(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* const in = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(in->sin_addr.s_addr) >> 24 == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

Listener::Listener(const std::string& host, int port) {
  ATH_CHECK(port >= 0 && port <= 65535, "--port: must be in [0, 65535], but got {}", port);
  const Addresses addresses = addresses_of(host, port);
  const addrinfo& first = *addresses;
  is_ipv6_ = first.ai_family == AF_INET6;
  is_loopback_ = is_loopback_address(first.ai_addr);
  socket_ = ::socket(first.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) fail_to_bind(host, port, errno);
  const int on = 1;  // a previous server may leave connections in TIME_WAIT
  ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket_, first.ai_addr, first.ai_addrlen) != 0 || ::listen(socket_, SOMAXCONN) != 0) {
    const int error = errno;
    ::close(socket_);
    fail_to_bind(host, port, error);
  }
}

Listener::~Listener() {
  ::close(socket_);
}

std::string Listener::url() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  if (::getsockname(socket_, plain, &length) != 0 ||
      ::getnameinfo(plain, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) !=
          0)
    return "http://?";
  return is_ipv6_ ? fmt::format("http://[{}]:{}", host, port) : fmt::format("http://{}:{}", host, port);
}

void Listener::stop(MHD_Daemon* daemon) const {
  while (true) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    const int client = ::accept4(socket_, plain, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client < 0 && errno == EINTR) continue;
    if (client < 0) break;
    MHD_add_connection(daemon, client, plain, length);
  }
  ::shutdown(socket_, SHUT_RDWR);
}

}  // namespace athanor::serve
