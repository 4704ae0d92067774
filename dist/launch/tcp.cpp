#include "dist/launch/detail/tcp.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

namespace athanor::dist::tcp {

using std::chrono::milliseconds;

namespace {

/// Timeout per address of a host; distant machines answer within a second or two.
constexpr milliseconds kConnect{3000};

const sockaddr* generic(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

}  // namespace

bool ready(int socket, short events, Clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
    if (left.count() <= 0) return false;
    pollfd one{socket, events, 0};
    const int got = ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 1000)));
    if (got > 0) return true;
  }
}

bool send_all(int socket, std::span<const std::byte> bytes, Clock::time_point until) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    const bool gone = sent < 0 && errno != EAGAIN && errno != EINTR;
    if (gone || (sent <= 0 && !ready(socket, POLLOUT, until))) return false;
    if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

bool receive_all(int socket, std::span<std::byte> bytes, Clock::time_point until) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    const bool gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    if (gone || (got < 0 && !ready(socket, POLLIN, until))) return false;
    if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

std::vector<sockaddr_storage> addresses_of(const char* host, int port, int family) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  std::vector<sockaddr_storage> addresses;
  if (::getaddrinfo(host, std::to_string(port).c_str(), &hints, &found) != 0) return addresses;
  for (const addrinfo* at = found; at; at = at->ai_next)
    std::memcpy(&addresses.emplace_back(), at->ai_addr, at->ai_addrlen);
  ::freeaddrinfo(found);
  return addresses;
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

Socket listen_at(const std::vector<sockaddr_storage>& addresses) {
  const int on = 1, off = 0;
  for (const sockaddr_storage& address : addresses) {
    Socket socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) continue;
    ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.ss_family == AF_INET6) ::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(socket.fd(), generic(address), sizeof address) == 0 && ::listen(socket.fd(), 1024) == 0)
      return socket;
  }
  return Socket();
}

Socket connect_to(const std::vector<sockaddr_storage>& addresses, Clock::time_point until) {
  for (const sockaddr_storage& address : addresses) {
    Socket socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) continue;
    const Clock::time_point patience = std::min(until, Clock::now() + kConnect);
    int error = ::connect(socket.fd(), generic(address), sizeof address) == 0 ? 0 : errno;
    socklen_t length = sizeof error;
    if (error == EINPROGRESS && ready(socket.fd(), POLLOUT, patience))
      ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0) return socket;
  }
  return Socket();
}

}  // namespace athanor::dist::tcp
